// Layers that look at data in training: what they note, when, and what becomes of it.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "diffeo/layers/base/registry.h"

namespace diffeo::testing {
namespace {

LayerPtr actnorm(int64_t features = 3) { return build_layer({{"type", "actnorm"}, {"features", features}}); }
LayerPtr batch_norm(int64_t features = 3) { return build_layer({{"type", "batch_norm"}, {"features", features}}); }
Tensor data(int64_t rows) {
  torch::manual_seed(4);
  return torch::randn({rows, 3}) * torch::tensor({0.1, 1.0, 100.0}) + torch::tensor({5.0, 0.0, -300.0});
}
bool same(const Tensor& a, const Tensor& b) { return torch::equal(a, b); }

TEST(ActNorm, TheFirstTrainingBatchComesOutStandardised) {
  const auto layer = actnorm();
  const auto [y, log_det] = layer->forward(data(500));
  EXPECT_LT(y.mean(0).abs().max().item<double>(), 1e-4);
  EXPECT_TRUE(torch::allclose(y.std(0, false), torch::ones(3), 1e-4, 1e-4));
  EXPECT_TRUE(torch::allclose(log_det, -data(500).std(0, false).log().sum().expand(500), 1e-4, 1e-4));
  const auto before = layer->forward(data(500)).value;
  layer->forward(7 * data(500) + 1);
  EXPECT_TRUE(same(layer->forward(data(500)).value, before)) << "initialised twice";
}

TEST(ActNorm, EvaluationSingleRowsInversesAndNaNDoNotInitialise) {
  const auto layer = actnorm();
  const auto x = data(50);
  layer->eval();
  EXPECT_TRUE(same(layer->forward(x).value, x));
  layer->train();
  EXPECT_TRUE(same(layer->forward(x.narrow(0, 0, 1)).value, x.narrow(0, 0, 1)));
  EXPECT_TRUE(same(layer->forward(x[0]).value, x[0]));
  EXPECT_EQ(layer->forward(x.narrow(0, 0, 0)).value.sizes(), at::IntArrayRef({0, 3}));
  EXPECT_TRUE(same(layer->inverse(x).value, x));
  auto broken = x.clone();
  broken[3][1] = std::numeric_limits<float>::quiet_NaN();
  layer->forward(broken);
  EXPECT_EQ(layer->named_buffers()["initialised"].item<int64_t>(), 0);
  EXPECT_FALSE(same(layer->forward(x).value, x));
  EXPECT_EQ(layer->named_buffers()["initialised"].item<int64_t>(), 1);
}

TEST(ActNorm, AConstantColumnIsOnlyShifted) {
  for (double constant : {0.0, 3.3, -1e6}) {
    const auto layer = actnorm();
    auto x = data(100);
    x.select(1, 1).fill_(constant);
    const auto [y, log_det] = layer->forward(x);
    EXPECT_LT(y.select(1, 1).abs().max().item<double>(), 1e-6 * (1 + std::abs(constant))) << constant;
    EXPECT_EQ(layer->named_parameters()["log_scale"][1].item<double>(), 0) << constant;
    EXPECT_TRUE(log_det.isfinite().all().item<bool>()) << constant;
  }
}

TEST(ActNorm, ACopyOfATrainedLayerDoesNotInitialiseAgain) {
  const auto layer = actnorm();
  layer->forward(data(100));
  const auto copy = actnorm();
  copy_state(*layer, *copy);
  copy->train();
  copy->forward(100 * data(100));
  EXPECT_TRUE(same(copy->forward(data(100)).value, layer->forward(data(100)).value));
}

TEST(BatchNorm, TrainingUsesTheBatchAndEvaluationTheRunningAverages) {
  const auto layer = batch_norm();
  const auto x = data(400);
  const auto [y, log_det] = layer->forward(x);
  EXPECT_LT(y.mean(0).abs().max().item<double>(), 1e-4);
  EXPECT_TRUE(torch::allclose(y.std(0, false), torch::ones(3), 1e-2, 1e-2));
  const auto variance = x.var(0, false);
  EXPECT_TRUE(torch::allclose(log_det, (-0.5 * (variance + 1e-5).log().sum()).expand(400), 1e-4, 1e-4));
  layer->eval();
  const auto mean = 0.1 * x.mean(0), running = 0.9 + 0.1 * variance;
  EXPECT_TRUE(torch::allclose(layer->forward(x).value, (x - mean) * (running + 1e-5).rsqrt(), 1e-4, 1e-4));
}

TEST(BatchNorm, GradientsFlowThroughTheStatisticsOfTheBatch) {
  const auto layer = batch_norm();
  auto x = data(20).requires_grad_();
  layer->forward(x).value.sum().backward();
  // The sum of a standardised batch is 0 whatever the batch.
  EXPECT_LT(x.grad().abs().max().item<double>(), 1e-4);
}

TEST(BatchNorm, ASingleRowUsesTheRunningAverages) {
  const auto layer = batch_norm();
  const auto x = data(5);
  EXPECT_TRUE(torch::allclose(layer->forward(x[0]).value, x[0], 1e-4));
  EXPECT_TRUE(torch::allclose(layer->forward(x.narrow(0, 1, 1)).value, x.narrow(0, 1, 1), 1e-4));
  EXPECT_EQ(layer->forward(x.narrow(0, 0, 0)).value.sizes(), at::IntArrayRef({0, 3}));
  EXPECT_TRUE(same(layer->named_buffers()["running_mean"], torch::zeros(3)));
}

TEST(BatchNorm, RunningAveragesKeepNoGraphAndNoNaN) {
  const auto layer = batch_norm();
  auto x = data(10).requires_grad_();
  layer->forward(x);
  for (const auto& buffer : layer->buffers()) EXPECT_FALSE(buffer.requires_grad());
  const auto before = layer->named_buffers()["running_mean"].clone();
  auto broken = data(10);
  broken[2][0] = std::numeric_limits<float>::infinity();
  layer->forward(broken);
  EXPECT_TRUE(same(layer->named_buffers()["running_mean"][0], before[0]));
  for (const auto& buffer : layer->buffers()) EXPECT_TRUE(buffer.isfinite().all().item<bool>());
}

}  // namespace
}  // namespace diffeo::testing
