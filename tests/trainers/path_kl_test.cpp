// The divergences of paths: against closed forms, their gradients against differences, and what they refuse.
#include "diffeo/trainers/path_kl.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <cmath>

#include "diffeo/flows/recipes.h"
#include "diffeo/samplers/annealed.h"
#include "diffeo/samplers/importance.h"
#include "diffeo/samplers/target.h"
#include "diffeo/samplers/weighted.h"
#include "diffeo/trainers/fit.h"

namespace diffeo::testing {
namespace {

const Json double_well = {{"type", "double_well"}};

FlowPtr small_snf(const char* kernel = "metropolis:steps=5,step_size=0.25") {
  torch::manual_seed(4);
  return build_flow(
      recipe("snf", {.features = 2, .layers = 2, .width = 16, .density = "double_well", .kernel = kernel}));
}

Batch rows(int64_t count, torch::Dtype dtype = torch::kFloat32) { return {.x = torch::randn({count, 2}, dtype)}; }

TEST(PathKl, WithoutRandomLayersItIsLikelihoodAndReverseDivergence) {
  torch::manual_seed(1);
  const auto flow = build_flow({{"type", "flow"},
                                {"layers", {{{"type", "coupling"}, {"features", 2}}}},
                                {"base", {{"type", "normal"}, {"features", 2}}}});
  flow->to(torch::kFloat64);
  const auto batch = rows(50, torch::kFloat64);
  PathKl forward(flow, {.target = double_well, .mixture = 1});
  EXPECT_NEAR(forward.loss(batch).item<double>(), MaximumLikelihood(flow).loss(batch).item<double>(), 1e-12);
  PathKl reverse(flow, {.target = double_well, .mixture = 0});
  torch::manual_seed(2);
  const auto got = reverse.loss(batch).item<double>();
  torch::manual_seed(2);
  const auto [x, log_prob] = flow->draw({50});
  EXPECT_NEAR(got, (flow->log_prob(x) - build_target(double_well)->log_prob(x)).mean().item<double>(), 1e-9);
}

// The loss is above -log Z, 0 here, by the divergence of the paths: half the variance of log weights that are nearly
// normal. The weights themselves have the mean Z, whatever the paths are.
TEST(PathKl, LossIsAboveTheConstantByTheScatterOfTheWeights) {
  const auto target =
      build_target({{"type", "gaussian_mixture"}, {"means", {{-1.0, 0.5}, {1.0, 0.0}}}, {"scale", 0.8}});
  const auto base = build_distribution({{"type", "normal"}, {"features", 2}});
  const auto flow =
      annealing_flow(target, base, {.kernel = {{"type", "langevin"}, {"steps", 5}, {"step_size", 0.02}}, .blocks = 8});
  flow->to(torch::kFloat64);
  flow->eval();
  torch::NoGradGuard no_grad;
  torch::manual_seed(3);
  const auto log_weight = draw_weighted(*flow, *target, 20000).log_weight;
  const auto [log_z, error] = log_mean_weight(log_weight);
  EXPECT_NEAR(log_z, 0, 5 * error);
  const double scatter = log_weight.var().item<double>() / 2;
  EXPECT_GT(scatter, 0.05) << "too even to say anything";
  PathKl reverse(flow, target, {.mixture = 0});
  const double loss = reverse.loss(rows(20000, torch::kFloat64)).item<double>();
  EXPECT_NEAR(loss, scatter, 0.3 * scatter);
}

TEST(PathKl, TrainingBringsThePathsToTheTarget) {
  for (const char* kernel : {"metropolis:steps=5,step_size=0.25", "langevin:steps=5,step_size=0.01",
                             "underdamped:steps=3,step_size=0.05", "mala:steps=3,step_size=0.02", "hmc:steps=1"}) {
    const auto flow = small_snf(kernel);
    const auto target =
        build_target({{"type", "gaussian_mixture"}, {"means", {{-1.0, 0.5}, {1.0, 0.0}}}, {"scale", 0.5}});
    const auto share = [&] {
      flow->eval();
      torch::manual_seed(6);
      return effective_sample_size(draw_weighted(*flow, *target, 2000).log_weight);
    };
    PathKl objective(flow, target, {.mixture = 0});
    const double before = objective.loss(rows(2000)).item<double>();
    fit(objective, *in_memory(rows(128)), nullptr,
        {.batch_size = 128, .steps = 60, .learning_rate = 5e-3, .checkpoint_seconds = 1e9, .seed = 1});
    torch::manual_seed(7);
    EXPECT_LT(objective.loss(rows(2000)).item<double>(), before - 0.1) << kernel;
    EXPECT_GT(share(), 0.01) << kernel;
  }
}

TEST(PathKl, GradientsAgreeWithDifferencesForFixedRandomNumbers) {
  for (const char* kernel : {"langevin:steps=3,step_size=0.02", "underdamped:steps=2,step_size=0.05"}) {
    const auto flow = small_snf(kernel);
    flow->to(torch::kFloat64);
    PathKl objective(flow, {.mixture = 0.3});
    const auto batch = rows(30, torch::kFloat64);
    const auto loss = [&] {
      torch::manual_seed(8);
      return objective.loss(batch);
    };
    auto parameters = objective.parameters();
    const auto grads = torch::autograd::grad({loss()}, parameters, {}, {}, false, true);
    torch::NoGradGuard no_grad;
    std::vector<Tensor> directions;
    double slope = 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      ASSERT_TRUE(grads[i].defined()) << kernel << " " << objective.named_parameters()[i].key();
      directions.push_back(torch::randn_like(parameters[i]));
      slope += (grads[i] * directions[i]).sum().item<double>();
    }
    const auto shift = [&](double step) {
      for (size_t i = 0; i < parameters.size(); ++i) parameters[i].add_(directions[i], step);
    };
    const double step = 1e-6;
    shift(step);
    const double up = loss().item<double>();
    shift(-2 * step);
    const double down = loss().item<double>();
    EXPECT_NEAR((up - down) / (2 * step), slope, 1e-4 * (1 + std::abs(slope))) << kernel;
  }
}

TEST(PathKl, MistakesAreRefused) {
  const auto message = [](const FlowPtr& flow, const Json& options) -> std::string {
    try {
      Json spec = {{"type", "path_kl"}};
      spec.update(options);
      build_objective(spec, flow);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(small_snf(), Json::object()), "");
  EXPECT_NE(message(small_snf(), {{"mixture", 2.0}}).find("mixture: must be from 0 to 1"), std::string::npos);
  EXPECT_NE(message(small_snf(), {{"target", {{"type", "funnel"}}}}).find("the target lives on"), std::string::npos);
  EXPECT_NE(message(small_snf(), {{"target", {{"type", "funel"}}}}).find("did you mean 'funnel'?"), std::string::npos);
  const auto plain = build_flow(recipe("realnvp", {.features = 2}));
  EXPECT_NE(message(plain, Json::object()).find("the flow has no stochastic layer"), std::string::npos);
  const auto conditional = build_flow(recipe("realnvp", {.features = 2, .context = 1}));
  EXPECT_NE(message(conditional, {{"target", double_well}}).find("without a context"), std::string::npos);
}

TEST(StochasticRecipe, HasTheLayersOfThePaperAndRefusesWhatMeansNothing) {
  const auto spec = recipe("snf", {.features = 2, .density = "double_well"});
  std::vector<double> lambdas;
  for (const auto& layer : spec["layers"])
    if (layer["type"] == "metropolis") lambdas.push_back(layer["lambda"]);
  EXPECT_EQ(lambdas, (std::vector<double>{1, 0.5, 0, 0}));
  EXPECT_EQ(build_flow(spec)->spec(), build_flow(build_flow(spec)->spec())->spec());
  const auto message = [](const RecipeOptions& options) -> std::string {
    try {
      recipe("snf", options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message({.features = 2}).find("density: is missing"), std::string::npos);
  EXPECT_NE(message({.features = 2, .layers = 3, .density = "double_well"}).find("pairs"), std::string::npos);
  EXPECT_NE(message({.features = 2, .context = 1, .density = "double_well"}).find("context"), std::string::npos);
  EXPECT_NE(message({.features = 2, .density = "double_well", .kernel = "hmc:lambda=1"}).find("chosen by the recipe"),
            std::string::npos);
  EXPECT_THROW(recipe("nsf", {.features = 2, .density = "double_well"}), Error);
}

}  // namespace
}  // namespace diffeo::testing
