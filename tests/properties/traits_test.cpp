// What a layer promises in its traits must be so: trainers skip work on the strength of it.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "properties/cases.h"

namespace diffeo::testing {
namespace {

TEST(Traits, AConstantLogDetDependsOnNoPoint) {
  int64_t constant = 0;
  for (const auto& one : every_case()) {
    if (one.dtype != torch::kFloat64 || one.device != torch::kCPU) continue;
    const auto layer = build(one);  // seeds torch with 1
    if (!layer->traits().constant_log_det) continue;
    ++constant;
    const auto options = torch::TensorOptions(one.dtype);
    const auto context = layer->context_size() > 0 ? torch::randn({16, layer->context_size()}, options) : Tensor();
    const auto [y, log_det] = layer->forward(points_in(layer->domain(), {16}, options), context);
    EXPECT_LE((log_det - log_det[0]).abs().max().item<double>(), 1e-12) << one.name << "\n" << log_det;
    const auto back = layer->inverse(y, context).log_det;
    EXPECT_LE((back - back[0]).abs().max().item<double>(), 1e-12) << one.name << "\n" << back;
  }
  EXPECT_GT(constant, 0);
}

}  // namespace
}  // namespace diffeo::testing
