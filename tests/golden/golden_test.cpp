// Known answers of other libraries: the same weights in, the same values and log-dets out (make_values.py made them).
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

const Json& cases() {
  static const Json all = [] {
    std::ifstream file(DIFFEO_GOLDEN_VALUES);
    return Json::parse(file)["cases"];
  }();
  return all;
}

/// Nested lists of numbers as a float64 tensor.
Tensor tensor_of(const Json& json) {
  if (json.is_number()) return at::scalar_tensor(json.get<double>(), at::kDouble);
  std::vector<Tensor> rows;
  for (const auto& row : json) rows.push_back(tensor_of(row));
  return at::stack(rows);
}

class Golden : public ::testing::TestWithParam<size_t> {
 protected:
  const Json& given() const { return cases()[GetParam()]; }
};

TEST_P(Golden, SameWeightsGiveTheSameAnswers) {
  SCOPED_TRACE(given()["program"].get<std::string>());
  const auto layer = build_layer(given()["spec"]);
  layer->to(torch::kFloat64);
  torch::NoGradGuard no_grad;
  auto ours = named_state(*layer);
  for (const auto& [name, values] : given()["state"].items()) {
    const auto found = std::find_if(ours.begin(), ours.end(), [&](const auto& item) { return item.first == name; });
    ASSERT_NE(found, ours.end()) << "the layer has no '" << name << "'";
    const auto tensor = tensor_of(values);
    ASSERT_EQ(found->second.sizes(), tensor.sizes()) << name;
    found->second.copy_(tensor);
  }
  for (const auto& [name, value] : layer->named_parameters().pairs())
    EXPECT_TRUE(given()["state"].contains(name)) << "'" << name << "' is not given";
  layer->eval();

  const auto context = given().contains("context") ? tensor_of(given()["context"]) : Tensor();
  const auto close = [](const Tensor& got, const Json& want) {
    EXPECT_TRUE(torch::allclose(got, tensor_of(want), 1e-9, 1e-9))
        << "largest difference " << (got - tensor_of(want)).abs().max();
  };
  const auto [y, log_det] = layer->forward(tensor_of(given()["x"]), context);
  close(y, given()["y"]);
  close(log_det, given()["log_det"]);
  if (!given().contains("inverse")) return;
  const auto& back = given()["inverse"];
  const auto [x, inverse_log_det] = layer->inverse(tensor_of(back["y"]), context);
  close(x, back["x"]);
  close(inverse_log_det, back["log_det"]);
}

TEST_P(Golden, AFirstBatchInitialisesAsItDoesThere) {
  if (!given().contains("first_batch")) return;
  const auto layer = build_layer(given()["spec"]);
  layer->to(torch::kFloat64);
  layer->train();
  layer->forward(tensor_of(given()["first_batch"]));
  layer->eval();
  const auto [y, log_det] = layer->forward(tensor_of(given()["x"]));
  // nflows divides the batch's squares by n - 1; we divide by n, as Glow does, so that its deviation is 1.
  const auto rows = static_cast<double>(given()["first_batch"].size());
  const auto larger = std::sqrt(rows / (rows - 1));
  EXPECT_TRUE(torch::allclose(y, tensor_of(given()["y"]) * larger, 1e-9, 1e-9)) << y;
  EXPECT_TRUE(torch::allclose(log_det, tensor_of(given()["log_det"]) + y.size(-1) * std::log(larger), 1e-9, 1e-9));
}

INSTANTIATE_TEST_SUITE_P(Peers, Golden, ::testing::Range(size_t{0}, cases().size()), [](const auto& info) {
  return cases()[info.param]["name"].template get<std::string>() + "_" +
         cases()[info.param]["program"].template get<std::string>().substr(0, 4);
});

}  // namespace
}  // namespace diffeo
