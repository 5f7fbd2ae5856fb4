#include "diffeo/trainers/objective.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "diffeo/layers/base/random.h"
#include "diffeo/trainers/evaluate.h"
#include "diffeo/trainers/noisy_data.h"
#include "trainers/rows.h"

namespace diffeo::testing {
namespace {

constexpr uint64_t seed = 5;

/// The standard normal distribution as a flow with one learnable shift: its loss tells which points it saw.
FlowPtr normal(int64_t features) {
  return build_flow({{"layers", {{{"type", "actnorm"}, {"features", features}}}},
                     {"base", {{"type", "normal"}, {"features", features}}}});
}

TEST(MaximumLikelihood, IsTheMeanNegativeLogLikelihood) {
  const auto flow = small_flow(2, seed);
  MaximumLikelihood objective(flow);
  objective.eval();
  const auto x = moons(50, seed);
  EXPECT_FLOAT_EQ(objective.loss({x}).item<float>(), -flow->log_prob(x).mean().item<float>());
  const auto weight = torch::arange(50).to(torch::kFloat32);
  EXPECT_NEAR(objective.loss({.x = x, .weight = weight}).item<double>(),
              -(flow->log_prob(x) * weight).sum().item<double>() / weight.sum().item<double>(), 1e-5);
}

TEST(NoisyData, NoiseHasTheDeviationOfEachColumnAndOnlyTrains) {
  SCOPED_TRACE(c10::str("seed ", seed));
  const SeedGuard guard(seed);
  const auto x = torch::zeros({20000, 2}, torch::kFloat64);
  // With u the noise, the loss is log(2 pi) + mean |u|^2 / 2.
  const double still = std::log(2 * 3.14159265358979323846);
  const auto flow = normal(2);
  flow->to(torch::kFloat64);
  flow->eval();
  for (const auto& buffer : flow->named_buffers()) Tensor(buffer.value()).fill_(1);  // ActNorm stays the identity
  NoisyData objective(std::make_shared<MaximumLikelihood>(flow), *flow, {.noise = 0.5}, torch::tensor({1.0, 4.0}));
  EXPECT_NEAR(objective.loss({x}).item<double>(), still + 0.5 * (0.25 + 4.0), 0.1);
  objective.eval();
  EXPECT_NEAR(objective.loss({x}).item<double>(), still, 1e-12);
}

TEST(NoisyData, DequantisationIsUniformOnItsColumnsAndAlwaysThere) {
  SCOPED_TRACE(c10::str("seed ", seed));
  const SeedGuard guard(seed);
  const auto x = torch::zeros({20000, 3}, torch::kFloat64);
  const double still = 1.5 * std::log(2 * 3.14159265358979323846);
  const auto flow = normal(3);
  flow->to(torch::kFloat64);
  for (const auto& buffer : flow->named_buffers()) Tensor(buffer.value()).fill_(1);
  NoisyData objective(std::make_shared<MaximumLikelihood>(flow), *flow, {.dequantize = {0, 2}});
  for (bool training : {true, false}) {
    objective.train(training);
    EXPECT_NEAR(objective.loss({x}).item<double>(), still + 2 * 0.5 / 3, 0.01);  // E u^2 = 1/3
  }
}

TEST(NoisyData, SaysWhatIsWrong) {
  const auto message_of = [](const NoisyData::Options& options, const Tensor& scale = {}) -> std::string {
    try {
      const auto flow = normal(3);
      NoisyData(std::make_shared<MaximumLikelihood>(flow), *flow, options, scale);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message_of({.noise = -0.1}), "noise: must not be negative, got -0.1");
  EXPECT_EQ(message_of({.dequantize = {0, 3}}), "dequantize/1: there is no column 3; the flow has columns 0 to 2");
  EXPECT_EQ(message_of({.noise = 1}, torch::ones({2})), "noise: expected a scale for each of the 3 columns, got [2]");
}

TEST(Objectives, AreBuiltFromSpecsWithErrorsThatNameThePlace) {
  const auto flow = small_flow(2, seed);
  const auto x = moons(20, seed);
  const auto objective = build_objective({{"type", "maximum_likelihood"}}, flow);
  objective->eval();
  EXPECT_FLOAT_EQ(objective->loss({x}).item<float>(), -flow->log_prob(x).mean().item<float>());
  const auto message_of = [&](const Json& spec) -> std::string {
    try {
      build_objective(spec, flow);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(message_of({{"type", "maximum_likelyhood"}}).find("did you mean 'maximum_likelihood'"), std::string::npos);
  EXPECT_NE(message_of({{"type", "maximum_likelihood"}, {"sigma", 1}}).find("unknown key 'sigma'"), std::string::npos);
  EXPECT_NE(message_of(Json::array()).find("names an objective"), std::string::npos);
}

TEST(MeanLoss, IsWeightedByRowsAndByWeights) {
  MaximumLikelihood objective(small_flow(2, seed));
  const auto x = moons(10, seed);
  const auto weight = torch::arange(10).to(torch::kFloat32);
  const auto log_prob = [&] {
    torch::NoGradGuard no_grad;
    objective.eval();
    std::vector<double> all;
    for (int64_t i = 0; i < 10; ++i) all.push_back(objective.loss({x.narrow(0, i, 1)}).item<double>());
    return torch::tensor(all, torch::kFloat64);
  }();
  objective.train();
  EXPECT_NEAR(mean_loss(objective, Rows({x}), 4, torch::kCPU), log_prob.mean().item<double>(), 1e-5);
  EXPECT_NEAR(mean_loss(objective, Rows({.x = x, .weight = weight}), 4, torch::kCPU),
              (log_prob * weight).sum().item<double>() / 45, 1e-5);
  EXPECT_TRUE(objective.is_training());
}

TEST(WeightedMean, IgnoresWhateverHasNoWeight) {
  const auto values = torch::tensor({1.0, -std::numeric_limits<double>::infinity(), 3.0}, torch::kFloat64);
  EXPECT_EQ(weighted_mean(values, torch::tensor({1.0, 0.0, 3.0}, torch::kFloat64)).item<double>(), 2.5);
  EXPECT_EQ(weighted_mean(values, torch::zeros({3}, torch::kFloat64)).item<double>(), 0);
}

TEST(SeedGuard, GivesTheSameNumbersInsideAndPutsTheOldOnesBack) {
  const SeedGuard outer(1);
  Tensor first, second;
  {
    const SeedGuard inner(2);
    first = torch::randn({5});
  }
  const auto after = torch::rand({3});
  {
    const SeedGuard inner(2);
    second = torch::randn({5});
  }
  EXPECT_TRUE(first.equal(second));
  const SeedGuard again(1);
  EXPECT_TRUE(torch::rand({3}).equal(after));
  const auto state = random_state(torch::kCPU);
  const auto next = torch::randn({3});
  set_random_state(torch::kCPU, state);
  EXPECT_TRUE(torch::randn({3}).equal(next));
  EXPECT_THROW(set_random_state(torch::kCPU, torch::zeros({3}, torch::kUInt8)), Error);
  EXPECT_THROW(set_random_state(torch::kCPU, {}), Error);
}

}  // namespace
}  // namespace diffeo::testing
