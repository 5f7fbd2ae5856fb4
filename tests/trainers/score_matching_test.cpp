// Objectives on the energy of a flow: their values and gradients, rows' weights, and what they refuse.
#include "diffeo/trainers/score_matching.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <cmath>

#include "diffeo/flows/recipes.h"
#include "diffeo/trainers/evaluate.h"

namespace diffeo::testing {
namespace {

constexpr int64_t features = 3;

FlowPtr flow_of(std::vector<Json> front = {}, uint64_t seed = 1) {
  torch::manual_seed(seed);
  auto spec = recipe("ebflow", {.features = features});
  for (const auto& layer : spec["layers"]) front.push_back(layer);
  spec["layers"] = front;
  auto flow = build_flow(spec);
  flow->to(torch::kFloat64);
  torch::NoGradGuard no_grad;
  for (auto& parameter : flow->parameters()) parameter.add_(torch::randn_like(parameter), 0.2);
  return flow;
}

std::vector<Json> every_objective() {
  return {{{"type", "score_matching"}},
          {{"type", "sliced_score_matching"}, {"slices", 2}},
          {{"type", "denoising_score_matching"}, {"sigma", 0.4}},
          {{"type", "finite_difference_score_matching"}, {"xi", 0.2}},
          {{"type", "self_maximum_likelihood"}}};
}

double value(Objective& objective, const Batch& batch, uint64_t seed = 2) {
  torch::manual_seed(seed);
  return objective.loss(batch).item<double>();
}

TEST(ScoreMatching, GradientsAgreeWithDifferences) {
  for (auto spec : every_objective()) {
    spec["energy_weight"] = 0.1;
    const auto flow = flow_of();
    const auto objective = build_objective(spec, flow);
    const bool resamples = spec["type"] == "self_maximum_likelihood";
    if (resamples) continue;  // its value is not what its gradient belongs to
    const Batch batch{.x = torch::randn({4, features}, torch::kFloat64)};
    const auto parameters = objective->parameters();
    torch::manual_seed(2);
    const auto grads = torch::autograd::grad({objective->loss(batch)}, parameters);
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i) {
      auto parameter = parameters[i];
      const auto direction = torch::randn_like(parameter);
      const auto at = [&](double step) {
        parameter.add_(direction, step);
        const double found = value(*objective, batch);
        parameter.sub_(direction, step);
        return found;
      };
      const double slope = (grads[i] * direction).sum().item<double>();
      EXPECT_NEAR((at(1e-5) - at(-1e-5)) / 2e-5, slope, 1e-5 * (1 + std::abs(slope))) << spec << " seed 2";
    }
  }
}

TEST(ScoreMatching, ValuesWithoutGradientsAreTheSame) {
  for (const auto& spec : every_objective()) {
    const auto objective = build_objective(spec, flow_of());
    const Batch batch{.x = torch::randn({4, features}, torch::kFloat64)};
    const double with = value(*objective, batch);
    torch::NoGradGuard no_grad;
    torch::manual_seed(2);
    const auto without = objective->loss(batch);
    EXPECT_FALSE(without.requires_grad());
    EXPECT_NEAR(without.item<double>(), with, 1e-12) << spec;
  }
}

TEST(ScoreMatching, TheExactLossIsThatOfAGaussianInClosedForm) {
  // s = -W^T W x - W^T b, trace -|W|^2.
  const auto flow = build_flow(recipe("ebflow", {.features = features, .layers = 1}));
  flow->to(torch::kFloat64);
  torch::manual_seed(3);
  torch::NoGradGuard no_grad;
  for (auto& parameter : flow->parameters()) parameter.add_(torch::randn_like(parameter), 0.3);
  const auto weight = flow->parameters()[0], bias = flow->parameters()[1];
  const auto x = torch::randn({6, features}, torch::kFloat64);
  const auto score = -(x.mm(weight.t()) + bias).mm(weight);
  const auto want = (0.5 * score.square().sum(-1) - weight.square().sum()).mean();
  for (const bool per_dimension : {false, true}) {
    const auto objective = build_objective({{"type", "score_matching"}, {"per_dimension", per_dimension}}, flow);
    EXPECT_NEAR(objective->loss({.x = x}).item<double>(), want.item<double>() / (per_dimension ? features : 1), 1e-12);
  }
}

TEST(ScoreMatching, WeightsCountRows) {
  for (const auto& spec : every_objective()) {
    if (spec["type"] == "self_maximum_likelihood") continue;
    const auto objective = build_objective(spec, flow_of());
    const auto x = torch::randn({4, features}, torch::kFloat64);
    auto spoilt = x.clone();
    spoilt[3].fill_(1e200);
    const auto weight = torch::tensor({1.0, 2.0, 0.5, 0.0}, torch::kFloat64);
    EXPECT_NEAR(value(*objective, {.x = x, .weight = weight}), value(*objective, {.x = spoilt, .weight = weight}), 1e-9)
        << spec;
  }
  // A row of weight 2 is two rows, where nothing is drawn.
  const auto objective = build_objective({{"type", "score_matching"}}, flow_of());
  const auto x = torch::randn({2, features}, torch::kFloat64);
  EXPECT_NEAR(value(*objective, {.x = x, .weight = torch::tensor({2.0, 1.0}, torch::kFloat64)}),
              value(*objective, {.x = torch::stack({x[0], x[0], x[1]})}), 1e-9);
}

TEST(ScoreMatching, IsDoneAfterThePreprocessing) {
  const Json standard = {
      {"type", "standardize"}, {"features", features}, {"shift", {1.0, 1.0, 1.0}}, {"scale", {10.0, 10.0, 10.0}}};
  const auto x = torch::randn({4, features}, torch::kFloat64);
  const auto plain = flow_of(), scaled = flow_of({standard});
  for (auto spec : every_objective()) {
    const double after = value(*build_objective(spec, scaled), {.x = 1 + 10 * x});
    EXPECT_NEAR(after, value(*build_objective(spec, plain), {.x = x}), 1e-9) << spec;
    spec["match_after_preprocessing"] = false;
    if (spec["type"] == "self_maximum_likelihood") continue;  // the difference of energies is the same
    EXPECT_GT(std::abs(after - value(*build_objective(spec, scaled), {.x = 1 + 10 * x})), 1e-3) << spec;
  }
}

TEST(ScoreMatching, SelfMaximumLikelihoodHasTheGradientOfTheLikelihood) {
  const auto flow = flow_of();
  const auto sml = build_objective({{"type", "self_maximum_likelihood"}, {"per_dimension", false}}, flow),
             ml = build_objective({{"type", "maximum_likelihood"}}, flow);
  const Batch batch{.x = torch::randn({40000, features}, torch::kFloat64)};
  torch::manual_seed(4);
  const auto ours = torch::autograd::grad({sml->loss(batch)}, flow->parameters());
  const auto want = torch::autograd::grad({ml->loss(batch)}, flow->parameters());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_LT((ours[i] - want[i]).abs().max().item<double>(), 0.05) << i << " seed 4";
  sml->eval();
  torch::NoGradGuard no_grad;
  EXPECT_NEAR(sml->loss(batch).item<double>(), ml->loss(batch).item<double>(), 1e-10);
}

TEST(ScoreMatching, BadOptionsAreNamed) {
  const auto problem = [&](const Json& spec) -> std::string {
    try {
      build_objective(spec, flow_of());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(problem({{"type", "denoising_score_matching"}, {"sigma", 0}}).find("sigma: must be above 0"),
            std::string::npos);
  EXPECT_NE(problem({{"type", "finite_difference_score_matching"}, {"xi", -0.1}}).find("xi: must be above 0"),
            std::string::npos);
  EXPECT_NE(problem({{"type", "sliced_score_matching"}, {"slices", 0}}).find("slices"), std::string::npos);
  EXPECT_NE(problem({{"type", "denoising_score_matching"}, {"sgima", 1}}).find("did you mean 'sigma'"),
            std::string::npos);
}

/// A layer that says of itself what the test wants.
class Pretender : public Layer {
 public:
  explicit Pretender(Traits traits) : Layer(Space::reals(features)), traits_(traits) {}
  Traits traits() const override { return traits_; }
  Json spec() const override { return {{"type", "pretender"}}; }

 private:
  Mapped map(const Tensor& x, const Tensor&) override { return {x, x.sum(-1)}; }
  Mapped unmap(const Tensor& y, const Tensor&) override { return {y, -y.sum(-1)}; }
  Traits traits_;
};

TEST(ScoreMatching, FlowsWithoutAnEnergyAreRefused) {
  const auto base = build_distribution({{"type", "normal"}, {"features", features}});
  const auto problem = [&](Traits traits) -> std::string {
    try {
      build_objective({{"type", "denoising_score_matching"}},
                      std::make_shared<Flow>(std::make_shared<Pretender>(traits), base));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(problem({.random = true}).find("random layers"), std::string::npos);
  EXPECT_NE(problem({.injective = true}).find("injective layers"), std::string::npos);
}

}  // namespace
}  // namespace diffeo::testing
