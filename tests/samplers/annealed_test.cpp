// Annealed importance sampling, chains, and flows with random layers as samplers.
#include "diffeo/samplers/annealed.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "diffeo/flows/normal.h"
#include "diffeo/layers/sequential/sequential.h"
#include "diffeo/samplers/chains.h"
#include "diffeo/samplers/distribution_density.h"
#include "diffeo/samplers/importance.h"
#include "diffeo/samplers/targets/gaussian_mixture.h"

namespace diffeo::testing {
namespace {

DistributionPtr standard_normal(int64_t features) {
  return std::make_shared<Normal>(Normal::Options{.features = features});
}

LogDensityPtr two_peaks() {
  return std::make_shared<GaussianMixture>(
      GaussianMixture::Options{.features = 2, .means = {{-1.5, 0}, {1.5, 0}}, .weights = {1, 3}, .scale = 0.6});
}

TEST(Annealed, EveryKernelFindsTheConstantOfANormalisedTarget) {
  for (const auto& name : kernel_names()) {
    torch::manual_seed(5);
    const bool small = name == "langevin" || name == "mala";
    const auto samples = annealed_importance_sampling(
        two_peaks(), standard_normal(2), 20000,
        {.kernel = {{"type", name}, {"steps", 3}, {"step_size", small ? 0.02 : 0.2}}, .blocks = 6});
    EXPECT_EQ(samples.x.sizes(), at::IntArrayRef({20000, 2}));
    const auto z = log_mean_weight(samples.log_weight);
    EXPECT_NEAR(z.value, 0, 4 * z.error) << name << ", seed 5";
    EXPECT_LT(z.error, 0.05) << name;
    const auto right = weighted_average(samples.log_weight, (samples.x.select(1, 0) > 0).to(torch::kFloat64));
    EXPECT_NEAR(right.value, 0.7469, 4 * right.error) << name;
  }
}

TEST(Annealed, TheScheduleAndTheSpecAreThoseAskedFor) {
  const auto target = build_target({{"type", "double_well"}});
  const auto flow = annealing_flow(target, standard_normal(2),
                                   {.kernel = {{"type", "metropolis"}, {"steps", 2}}, .schedule = {0.1, 0.5, 1}});
  const auto kernels = kernels_of(*flow);  // from the base to the target
  ASSERT_EQ(kernels.size(), 3u);
  EXPECT_EQ(kernels[0]->density().lambda(), 0.1);
  EXPECT_EQ(kernels[2]->density().lambda(), 1);
  const auto again = build_flow(flow->spec());
  EXPECT_EQ(again->spec(), flow->spec());
  for (const auto& one : {flow, again}) one->eval();
  torch::manual_seed(1);
  const auto want = flow->draw({10});
  torch::manual_seed(1);
  const auto got = again->draw({10});
  EXPECT_TRUE(torch::allclose(got.value, want.value) && torch::allclose(got.log_prob, want.log_prob));
}

TEST(Annealed, MistakesAreRefused) {
  const auto target = two_peaks();
  const auto message = [&](const Annealing& how, const DistributionPtr& base) -> std::string {
    try {
      annealing_flow(target, base, how);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto base = standard_normal(2);
  EXPECT_NE(message({.schedule = {0.5, 0.2, 1}}, base).find("schedule/1: must grow"), std::string::npos);
  EXPECT_NE(message({.schedule = {0.5, 0.7}}, base).find("must end at 1"), std::string::npos);
  EXPECT_NE(message({.blocks = 0}, base).find("blocks"), std::string::npos);
  EXPECT_NE(message({.kernel = {{"type", "hcm"}}}, base).find("did you mean 'hmc'?"), std::string::npos);
  EXPECT_NE(message({.kernel = {{"type", "hmc"}, {"lambda", 0.5}}}, base).find("chosen by the annealing"),
            std::string::npos);
  EXPECT_NE(message({.kernel = {{"type", "hmc"}, {"step_size", -1}}}, base).find("step_size: must be above 0"),
            std::string::npos);
  EXPECT_NE(message({}, standard_normal(3)).find("the base lives on"), std::string::npos);
}

TEST(Annealed, AFlowWithoutRandomLayersGivesOrdinaryWeights) {
  torch::manual_seed(2);
  const auto flow = build_flow({{"type", "flow"},
                                {"layers", {{{"type", "coupling"}, {"features", 2}}}},
                                {"base", {{"type", "normal"}, {"features", 2}}}});
  const auto target = two_peaks();
  torch::manual_seed(3);
  const auto samples = draw_weighted(*flow, *target, 50, 50);
  EXPECT_TRUE(torch::allclose(samples.log_weight, target->log_prob(samples.x) - flow->log_prob(samples.x), 1e-4, 1e-4));
  EXPECT_EQ(draw_weighted(*flow, *target, 0).x.size(0), 0);
  EXPECT_EQ(draw_weighted(*flow, *target, 25, 10).x.size(0), 25);
  EXPECT_THROW(draw_weighted(*flow, *build_target({{"type", "funnel"}}), 5), Error);
}

TEST(Chains, DrawFromTheirDensity) {
  for (const char* name : {"metropolis", "mala", "hmc"}) {
    torch::manual_seed(7);
    const auto target = two_peaks();
    const auto kernel =
        build_kernel({{"type", name}, {"steps", 5}, {"step_size", 0.4}, {"target_acceptance", 0.6}}, target);
    const auto draws = run_chains(*kernel, torch::randn({500, 2}), {.draws = 40, .discard = 60, .thin = 2});
    EXPECT_EQ(draws.sizes(), at::IntArrayRef({40, 500, 2}));
    EXPECT_NEAR(draws.select(2, 1).std().item<double>(), 0.6, 0.02) << name << ", seed 7";
    EXPECT_NEAR((draws.select(2, 0) > 0).to(torch::kFloat64).mean().item<double>(), 0.744, 0.06) << name;
    EXPECT_NEAR(kernel->acceptance(), 0.6, 0.12) << name;
  }
  const auto kernel = build_kernel({{"type", "hmc"}}, two_peaks());
  EXPECT_THROW(run_chains(*kernel, torch::zeros({2}), {}), Error);
  EXPECT_THROW(run_chains(*kernel, torch::zeros({5, 2}), {.draws = 0}), Error);
}

TEST(Kernels, AdaptInTrainingOnlyAndKeepTheirStepOtherwise) {
  torch::manual_seed(8);
  const auto kernel = build_kernel(
      {{"type", "metropolis"}, {"steps", 5}, {"step_size", 20.0}, {"target_acceptance", 0.4}}, two_peaks());
  const auto x = torch::randn({200, 2});
  kernel->eval();
  EXPECT_TRUE(std::isnan(kernel->acceptance()));
  kernel->forward(x);
  EXPECT_LT(kernel->acceptance(), 0.1);
  EXPECT_NEAR(kernel->step_size(), 20, 1e-4);
  kernel->train();
  auto points = x;
  for (int i = 0; i < 100; ++i) points = kernel->forward(points).value;
  EXPECT_NEAR(kernel->acceptance(), 0.4, 0.1);
  EXPECT_LT(kernel->step_size(), 5);
  EXPECT_THROW(build_kernel({{"type", "metropolis"}, {"target_acceptance", 1.5}}, two_peaks()), Error);
}

TEST(Kernels, LambdaWeighsStartAndDensity) {
  const auto start = std::make_shared<DistributionDensity>(standard_normal(2));
  const auto end = two_peaks();
  const auto x = torch::randn({5, 2});
  for (const double lambda : {0.0, 0.3, 1.0}) {
    Interpolation between(start, end, lambda);
    const auto want = (1 - lambda) * start->log_prob(x) + lambda * end->log_prob(x);
    const auto [log_prob, gradient] = between.log_prob_and_gradient(x);
    EXPECT_TRUE(torch::allclose(between.log_prob(x), want, 1e-5, 1e-5));
    EXPECT_TRUE(torch::allclose(log_prob, want, 1e-5, 1e-5));
    const auto slope =
        (1 - lambda) * start->log_prob_and_gradient(x).gradient + lambda * end->log_prob_and_gradient(x).gradient;
    EXPECT_TRUE(torch::allclose(gradient, slope, 1e-5, 1e-5));
  }
  EXPECT_THROW(Interpolation(start, end, 1.5), Error);
  EXPECT_THROW(Interpolation(nullptr, build_log_density({{"type", "uniform"}, {"features", 2}}), 1), Error);
  EXPECT_THROW(build_log_density({{"type", "nothing"}}), Error);
}

// The bound averages to the density itself: here one kernel that leaves the base as it is, so that p(x) is the base's.
TEST(Flow, BoundOfTheDensityApproachesItWithManyPaths) {
  const auto base = standard_normal(1);
  const auto kernel = build_kernel({{"type", "langevin"}, {"steps", 3}, {"step_size", 0.2}},
                                   build_log_density({{"type", "normal"}, {"features", 1}}));
  Flow flow(std::make_shared<Sequential>(std::vector<LayerPtr>{kernel}), base);
  flow.to(torch::kFloat64);
  torch::manual_seed(9);
  torch::NoGradGuard no_grad;
  const auto x = torch::tensor({{0.0}, {1.0}, {-2.0}}, torch::kFloat64);
  const auto draws = flow.draw({400000}).value;
  const auto few = flow.log_prob_bound(x.repeat({20000, 1}), {}, 1).view({20000, 3}).mean(0),
             many = flow.log_prob_bound(x, {}, 4000);
  for (int64_t i = 0; i < 3; ++i) {
    const double half = 0.05,
                 near = ((draws - x[i]).abs() < half).to(torch::kFloat64).mean().item<double>() / (2 * half);
    EXPECT_NEAR(many[i].item<double>(), std::log(near), 0.05) << "seed 9";
    EXPECT_LT(few[i].item<double>(), many[i].item<double>() + 0.05) << "seed 9";  // on average a bound
  }
}

}  // namespace
}  // namespace diffeo::testing
