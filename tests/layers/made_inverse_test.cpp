// Autoregressive layers without gradients, in tiles of rows, against what they do where gradients are recorded: the way
// back, each hidden unit computed once, against one pass of the whole network for each feature, and the way there. For
// every kind of network, map and order, and every instruction set of this machine.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <limits>

#include "diffeo/layers/base/cpu_capability.h"
#include "diffeo/layers/base/error.h"
#include "diffeo/layers/base/registry.h"
#include "diffeo/layers/nets/made.h"
#include "properties/cases.h"

namespace diffeo {
namespace {

constexpr int64_t seed = 23;

/// A layer with weights that are not those of a start, in evaluation.
LayerPtr layer_of(Json spec, torch::Dtype dtype = torch::kFloat64) {
  spec["type"] = "autoregressive";
  torch::manual_seed(seed);
  const auto layer = build_layer(spec);
  layer->to(dtype);
  torch::NoGradGuard no_grad;
  for (auto& parameter : layer->parameters()) parameter.add_(torch::randn_like(parameter), 0.2);
  for (auto& buffer : layer->named_buffers()) {
    if (buffer.key().find("running_mean") != std::string::npos) buffer.value().normal_();
    if (buffer.key().find("running_var") != std::string::npos) buffer.value().uniform_(0.5, 2);
  }
  layer->eval();
  return layer;
}

Tensor context_for(const Layer& layer, std::vector<int64_t> batch) {
  if (layer.context_size() == 0) return {};
  batch.push_back(layer.context_size());
  return torch::randn(batch, layer.tensor_options());
}

Mapped filled(Layer& layer, const Tensor& y, const Tensor& context) {
  torch::NoGradGuard no_grad;
  return layer.inverse(y, context);
}

/// Recording gradients, which takes the other way.
Mapped passed(Layer& layer, const Tensor& y, const Tensor& context) {
  const auto [value, log_det] = layer.inverse(y.detach().requires_grad_(), context);
  EXPECT_TRUE(y.numel() == 0 || value.requires_grad());
  return {value.detach(), log_det.detach()};
}

double difference(const Tensor& got, const Tensor& want) {
  EXPECT_EQ(got.sizes(), want.sizes());
  EXPECT_EQ(got.scalar_type(), want.scalar_type());
  if (got.numel() == 0) return 0;
  return ((got - want).abs() / (1 + want.abs())).max().item<double>();
}

void expect_same(Layer& layer, const std::vector<int64_t>& batch, double tolerance = 1e-10) {
  SCOPED_TRACE(c10::str(layer.spec().dump(), ", batch ", batch, ", seed ", seed));
  torch::manual_seed(seed);
  const auto y = testing::points_in(layer.codomain(), batch, layer.tensor_options());
  const auto context = context_for(layer, batch);
  const auto got = filled(layer, y, context), want = passed(layer, y, context);
  EXPECT_LE(difference(got.value, want.value), tolerance);
  EXPECT_LE(difference(got.log_det, want.log_det), tolerance);
  // The way there has two ways of its own: in tiles, and recording gradients.
  const auto x = want.value, graph = x.detach().clone().requires_grad_();
  const auto recorded = layer.forward(graph, context);
  torch::NoGradGuard no_grad;
  const auto there = layer.forward(x, context);
  EXPECT_FALSE(there.value.requires_grad());
  EXPECT_LE(difference(there.value, recorded.value), tolerance);
  EXPECT_LE(difference(there.log_det, recorded.log_det), tolerance);
}

class MadeInverse : public ::testing::TestWithParam<CpuCapability> {
 protected:
  CpuCapabilityGuard guard{GetParam()};
};

TEST_P(MadeInverse, EveryNetwork) {
  for (const std::string type : {"mlp", "residual"})
    for (const int64_t context : {0, 3})
      for (const int64_t depth : {0, 1, 2, 3})
        for (const std::string order : {"natural", "reverse", "random"})
          for (const bool norm : {false, true}) {
            if (norm && type == "mlp") continue;
            const Json net = {{"type", type},   {"width", 32},        {"depth", depth},
                              {"dropout", 0.3}, {"batch_norm", norm}, {"activation", "tanh"}};
            expect_same(
                *layer_of({{"features", 6}, {"context", context}, {"order", order}, {"order_seed", 4}, {"net", net}}),
                {70});
          }
}

TEST_P(MadeInverse, EveryActivation) {
  for (const std::string type : {"mlp", "residual"})
    for (const std::string activation : {"relu", "tanh", "silu", "gelu", "elu", "leaky_relu", "softplus", "sigmoid"})
      expect_same(
          *layer_of(
              {{"features", 4}, {"context", 2}, {"net", {{"type", type}, {"width", 12}, {"activation", activation}}}}),
          {70});
}

TEST_P(MadeInverse, EveryMap) {
  for (const auto* map : all_univariates())
    for (const auto& example : map->examples) {
      Json spec = {{"type", map->name}};
      spec.update(example.spec);
      const auto built = build_univariate(spec);
      if (built->parameters() == 0 || !built->separable()) continue;
      expect_same(*layer_of({{"features", 5}, {"map", spec}, {"net", {{"width", 16}}}}), {70});
      expect_same(*layer_of({{"features", 3}, {"context", 1}, {"map", spec}, {"net", {{"type", "residual"}}}}), {70});
    }
}

TEST_P(MadeInverse, EverySizeOfNetwork) {
  for (const int64_t features : {1, 2, 3, 7, 20})
    for (const int64_t width : {1, 2, 5, 13, 64, 100})
      for (const int64_t context : {0, 1})
        expect_same(*layer_of({{"features", features},
                               {"context", context},
                               {"order", "random"},
                               {"net", {{"type", width % 2 == 0 ? "mlp" : "residual"}, {"width", width}}}}),
                    {3});
}

TEST_P(MadeInverse, EveryBatch) {
  const Json net = {{"type", "residual"}, {"width", 32}};
  for (const std::string map : {"affine", "rq_spline"})
    for (const int64_t context : {0, 2}) {
      const auto layer = layer_of({{"features", 5}, {"context", context}, {"map", {{"type", map}}}, {"net", net}});
      for (const auto& batch :
           std::vector<std::vector<int64_t>>{{}, {0}, {1}, {63}, {64}, {65}, {1000}, {3, 4}, {2, 0}, {5, 1, 30}})
        expect_same(*layer, batch);
    }
}

TEST_P(MadeInverse, InFloat32ItIsAsNearToTheTruthAsPasses) {
  // How far float32 can be off depends on the layer; so the passes in float32 are the measure.
  for (const std::string type : {"mlp", "residual"})
    for (const std::string map : {"affine", "rq_spline"}) {
      SCOPED_TRACE(c10::str(type, ", ", map, ", seed ", seed));
      const Json spec = {{"features", 10},
                         {"context", 2},
                         {"map", {{"type", map}}},
                         {"net", {{"type", type}, {"width", 64}, {"activation", "silu"}}}};
      const auto exact = layer_of(spec), single = layer_of(spec);
      single->to(torch::kFloat32);
      const auto y = torch::randn({1000, 10}), context = torch::randn({1000, 2});
      copy_state(*single, *exact);
      const auto truth = filled(*exact, y.to(torch::kFloat64), context.to(torch::kFloat64));
      const auto mine = filled(*single, y, context), theirs = passed(*single, y, context);
      const auto error = [&](const Tensor& got, const Tensor& want) {
        return difference(got.to(torch::kFloat64), want);
      };
      EXPECT_LE(error(mine.value, truth.value), 5 * error(theirs.value, truth.value) + 1e-6);
      EXPECT_LE(error(mine.log_det, truth.log_det), 5 * error(theirs.log_det, truth.log_det) + 1e-6);
      if (map == "affine") {
        EXPECT_LE(error(mine.value, truth.value), 1e-4);
      }
    }
}

TEST_P(MadeInverse, ARowIsTheSameBitsInAnyBatchAndWithAnyNumberOfThreads) {
  const int before = at::get_num_threads();
  for (const std::string map : {"affine", "rq_spline"}) {
    SCOPED_TRACE(c10::str(map, ", seed ", seed));
    const auto layer = layer_of({{"features", 6}, {"context", 1}, {"map", {{"type", map}}}}, torch::kFloat32);
    const auto y = torch::randn({1500, 6}), context = torch::randn({1500, 1});
    at::set_num_threads(1);
    const auto one = filled(*layer, y, context);
    at::set_num_threads(2);
    const auto two = filled(*layer, y, context);
    at::set_num_threads(before);
    EXPECT_TRUE(torch::equal(one.value, two.value));
    EXPECT_TRUE(torch::equal(one.log_det, two.log_det));
    if (map != "affine") continue;
    const auto alone = filled(*layer, y[777], context[777]);
    EXPECT_TRUE(torch::equal(alone.value, one.value[777]));
    EXPECT_TRUE(torch::equal(alone.log_det, one.log_det[777]));
  }
}

TEST_P(MadeInverse, StridesDoNotMatter) {
  const auto layer = layer_of({{"features", 4}, {"context", 2}});
  const auto y = torch::randn({70, 4}, torch::kDouble), context = torch::randn({2}, torch::kDouble);
  const auto want = filled(*layer, y, context.expand({70, 2}).contiguous());
  for (const auto& view : {y.t().contiguous().t(), torch::cat({y, y}, 1).narrow(1, 4, 4)}) {
    const auto got = filled(*layer, view, context);
    EXPECT_TRUE(torch::equal(got.value, want.value));
    EXPECT_TRUE(torch::equal(got.log_det, want.log_det));
    EXPECT_TRUE(got.value.is_contiguous());
  }
}

TEST_P(MadeInverse, ANaNStaysInItsRow) {
  for (const std::string activation : {"relu", "gelu", "silu", "tanh", "softplus", "elu", "leaky_relu", "sigmoid"})
    for (const std::string map : {"affine", "rq_spline"}) {
      SCOPED_TRACE(c10::str(activation, ", ", map, ", seed ", seed));
      const auto layer =
          layer_of({{"features", 4}, {"map", {{"type", map}}}, {"net", {{"activation", activation}}}}, torch::kFloat32);
      auto y = torch::randn({70, 4});
      const auto clean = filled(*layer, y, {});
      y[66][0] = std::numeric_limits<float>::quiet_NaN();
      const auto got = filled(*layer, y, {});
      EXPECT_TRUE(got.value[66].isnan().all().item<bool>()) << got.value[66];
      EXPECT_TRUE(got.log_det[66].isnan().item<bool>());
      EXPECT_TRUE(torch::equal(got.value.narrow(0, 0, 66), clean.value.narrow(0, 0, 66)));
      EXPECT_TRUE(torch::equal(got.value.narrow(0, 67, 3), clean.value.narrow(0, 67, 3)));
    }
}

TEST(MadeInverseKernel, RunsOnTheGpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "needs a GPU and a build with DIFFEO_CUDA";
  const auto expect = [](Json spec, torch::Dtype dtype, double tolerance) {
    const auto layer = layer_of(std::move(spec), dtype);
    layer->to(torch::kCUDA);
    for (const int64_t rows : {1, 31, 32, 100}) expect_same(*layer, {rows}, tolerance);
  };
  for (const std::string type : {"mlp", "residual"})
    for (const int64_t context : {0, 3})
      for (const int64_t depth : {0, 1, 2})
        for (const std::string activation : {"relu", "tanh", "silu", "gelu", "elu", "softplus"})
          expect({{"features", 5},
                  {"context", context},
                  {"order", "random"},
                  {"net", {{"type", type}, {"width", 11}, {"depth", depth}, {"activation", activation}}}},
                 torch::kFloat64, 1e-10);
  for (const std::string scale : {"bounded", "exp", "sigmoid", "softplus"}) {
    const Json map = {{"type", "affine"}, {"scale", scale}};
    expect({{"features", 4}, {"map", map}, {"net", {{"width", 40}}}}, torch::kFloat64, 1e-10);
    expect({{"features", 4}, {"map", map}, {"net", {{"width", 40}}}}, torch::kFloat32, 1e-4);
  }
  // Too wide for shared memory: one pass for each feature.
  expect({{"features", 3}, {"net", {{"width", 4000}}}}, torch::kFloat64, 1e-10);
}

INSTANTIATE_TEST_SUITE_P(Every, MadeInverse, ::testing::ValuesIn(cpu_capabilities()),
                         [](const auto& info) { return to_string(info.param); });

TEST(AutoregressiveInverse, InTrainingDropoutAndBatchNormalisationPassThroughTheNetwork) {
  for (const std::string option : {"dropout", "batch_norm"}) {
    Json net = {{"type", "residual"}, {"width", 8}};
    net[option] = option == "dropout" ? Json(0.5) : Json(true);
    const auto layer = layer_of({{"features", 3}, {"net", net}});
    layer->train();
    const auto y = torch::randn({20, 3}, torch::kDouble);
    torch::manual_seed(seed);
    const auto got = filled(*layer, y, {});
    torch::manual_seed(seed);
    EXPECT_EQ(difference(passed(*layer, y, {}).value, got.value), 0) << option;
    layer->eval();
    EXPECT_GT(difference(filled(*layer, y, {}).value, got.value), 1e-6) << option;
  }
}

TEST(AutoregressiveInverse, ErrorsNameTheRowAndTheFeature) {
  const Json map = {{"type", "rq_spline"}, {"tails", "none"}, {"domain", {0.0, 1.0}}};
  for (const std::string order : {"natural", "reverse"})
    for (const bool gradients : {false, true}) {
      const auto layer = layer_of({{"features", 4}, {"map", map}, {"order", order}});
      auto y = torch::rand({2, 700, 4}, torch::kDouble);
      y[1][5][2] = 1.5;
      try {
        gradients ? passed(*layer, y, {}) : filled(*layer, y, {});
        FAIL() << "a point outside of the codomain was taken";
      } catch (const Error& error) {
        const std::string message = error.what();
        EXPECT_NE(message.find("point 1.5 at row 705, feature 2"), std::string::npos) << message;
      }
    }
}

TEST(AutoregressiveInverse, GradientsAreRecordedWhereTheyAreWanted) {
  const auto layer = layer_of({{"features", 3}, {"context", 1}});
  const auto y = torch::randn({4, 3}, torch::kDouble), context = torch::randn({4, 1}, torch::kDouble);
  EXPECT_TRUE(layer->inverse(y, context).value.requires_grad());
  for (auto& parameter : layer->parameters()) parameter.requires_grad_(false);
  EXPECT_FALSE(layer->inverse(y, context).value.requires_grad());
  EXPECT_TRUE(layer->inverse(y.detach().requires_grad_(), context).value.requires_grad());
  EXPECT_TRUE(layer->inverse(y, context.detach().requires_grad_()).value.requires_grad());
}

}  // namespace
}  // namespace diffeo
