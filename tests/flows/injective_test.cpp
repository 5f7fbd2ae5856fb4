// Flows whose density lives on a manifold: what they offer, what they refuse, and the objective that trains them.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "data/scratch.h"
#include "diffeo/data/model_file.h"
#include "diffeo/flows/likelihood.h"
#include "diffeo/flows/model.h"
#include "diffeo/flows/recipes.h"
#include "diffeo/trainers/fit.h"
#include "diffeo/trainers/free_form_injective.h"

namespace diffeo::testing {
namespace {

FlowPtr small_flow(const std::string& name, torch::Dtype dtype = torch::kFloat64) {
  torch::manual_seed(3);
  auto flow = build_flow(recipe(name, {.features = 4, .latent = 2, .layers = name == "injective" ? 0 : 2, .width = 8}));
  flow->to(dtype);
  torch::NoGradGuard no_grad;
  for (auto& parameter : flow->parameters()) parameter.add_(torch::randn_like(parameter), 0.1);
  flow->eval();
  return flow;
}

template <class Body>
std::string message(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

#define EXPECT_SAYS(body, words) \
  EXPECT_NE(message([&] { body; }).find(words), std::string::npos) << message([&] { body; })

TEST(InjectiveFlow, DrawnPointsHaveTheDensityThatTheyCameWith) {
  for (const auto* name : {"rectangular", "conformal"})
    for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
      SCOPED_TRACE(name);
      const auto flow = small_flow(name, dtype);
      const double near = dtype == torch::kFloat32 ? 5e-3 : 1e-7;
      torch::NoGradGuard no_grad;
      const auto [x, log_prob] = flow->draw({64});
      EXPECT_TRUE(torch::allclose(flow->log_prob(x), log_prob, near, near));
      EXPECT_LE(flow->project(x).distance.max().item<double>(), near);
    }
}

TEST(InjectiveFlow, LogProbRefusesPointsOffTheManifoldAndProjectTakesThem) {
  torch::NoGradGuard no_grad;
  for (const auto* name : {"injective", "rectangular", "conformal"}) {
    SCOPED_TRACE(name);
    const auto flow = small_flow(name);
    const auto x = torch::randn({10, 4}, torch::kFloat64);
    EXPECT_SAYS(flow->log_prob(x), "10 of 10 points are off the manifold of this injective flow");
    EXPECT_SAYS(flow->log_prob(x), "project gives the density at their projections");
    const auto [value, log_prob, distance] = flow->project(x);
    EXPECT_EQ(value.sizes(), x.sizes());
    EXPECT_EQ(log_prob.sizes(), at::IntArrayRef({10}));
    EXPECT_TRUE(torch::allclose(distance, (x - value).norm(2, -1)));
    EXPECT_GT(distance.min().item<double>(), 0);
    EXPECT_EQ(flow->project(x.view({2, 5, 4})).log_prob.sizes(), at::IntArrayRef({2, 5}));
  }
}

TEST(InjectiveFlow, AFlowOfFullDimensionProjectsToThePointsThemselves) {
  const auto flow = build_flow(recipe("realnvp", {.features = 3, .width = 8}));
  const auto x = torch::randn({6, 3});
  const auto [value, log_prob, distance] = flow->project(x);
  EXPECT_TRUE(torch::equal(value, x));
  EXPECT_TRUE(torch::equal(log_prob, flow->log_prob(x)));
  EXPECT_EQ(distance.abs().max().item<double>(), 0);
}

/// A scale before an injective layer stretches a volume by what it does to the tangents: for one scale s of all
/// features, d log s.
TEST(InjectiveFlow, VolumesIncludeTheLayersInFront) {
  const auto inner = small_flow("injective");
  const double scale = 3;
  std::vector<LayerPtr> layers{build_layer({{"type", "standardize"},
                                            {"features", 4},
                                            {"shift", {1.0, 0.0, -2.0, 0.5}},
                                            {"scale", {scale, scale, scale, scale}}})};
  layers.front()->to(torch::kFloat64);
  layers.push_back(static_cast<const Sequential&>(*inner->layers()).layers().front());
  const auto base = inner->base();
  Flow whole(std::make_shared<Sequential>(layers), base);
  whole.to(torch::kFloat64);
  const auto x = torch::randn({8, 4}, torch::kFloat64);
  const auto front = layers.front()->forward(x).value;
  EXPECT_TRUE(
      torch::allclose(whole.project(x).log_prob, inner->project(front).log_prob - 2 * std::log(scale), 1e-10, 1e-10));
  EXPECT_TRUE(torch::allclose(whole.project(x).distance, scale * inner->project(front).distance, 1e-10, 1e-10));
}

TEST(InjectiveFlow, RowsOneByOneAndInPiecesGiveTheSame) {
  torch::NoGradGuard no_grad;
  const auto flow = small_flow("injective");
  const auto x = torch::randn({20000, 4}, torch::kFloat64);  // more than are worked on at a time
  const auto all = flow->project(x).log_prob;
  EXPECT_TRUE(torch::allclose(all.slice(0, 19000), flow->project(x.slice(0, 19000)).log_prob, 1e-12, 1e-12));
}

TEST(FreeFormInjective, TrainsSavesAndLoadsBitForBit) {
  const Scratch scratch;
  torch::manual_seed(5);
  const auto t = torch::randn({600, 2});
  const auto x = torch::stack({t.select(1, 0), t.select(1, 1), (t.select(1, 0) * t.select(1, 1)).tanh()}, -1);
  const auto data = in_memory({.x = x});
  for (const char* volume : {"off_manifold", "on_manifold", "exact"}) {
    SCOPED_TRACE(volume);
    torch::manual_seed(6);
    const auto flow = build_flow(recipe("injective", {.features = 3, .latent = 2, .width = 16, .depth = 1}));
    FreeFormInjective objective(flow, {.beta = 10, .probes = 2, .noise = 0.01, .warmup_steps = 10, .volume = volume});
    objective.eval();
    torch::NoGradGuard no_grad;
    const double before = objective.loss({.x = x}).item<double>();
    {
      const at::AutoGradMode enabled(true);
      fit(objective, *data, nullptr, {.batch_size = 100, .steps = 80, .learning_rate = 3e-3, .checkpoint_seconds = 0});
    }
    EXPECT_LT(objective.loss({.x = x}).item<double>(), before - 1);
    save(*flow, scratch / "flow.h5");
    const auto again = load_flow(scratch / "flow.h5");
    const auto mine = flow->project(x), theirs = again->project(x);
    EXPECT_TRUE(torch::equal(mine.value, theirs.value) && torch::equal(mine.log_prob, theirs.log_prob));
  }
}

/// Maximum likelihood on the manifold, for flows that undo themselves there.
TEST(FreeFormInjective, TheExactVolumeTrainsRectangularAndConformalFlows) {
  torch::manual_seed(5);
  const auto t = torch::randn({500, 2});
  const auto x = torch::cat({2 * t, 0.1 * torch::randn({500, 1})}, 1);
  const auto data = in_memory({.x = x});
  for (const auto* name : {"rectangular", "conformal"})
    for (const auto* volume : {"exact", "off_manifold"}) {
      SCOPED_TRACE(c10::str(name, " ", volume));
      torch::manual_seed(6);
      const auto flow = build_flow(recipe(name, {.features = 3, .latent = 2, .layers = 1, .width = 8}));
      FreeFormInjective objective(flow, {.beta = 10, .volume = volume});
      const auto loss = [&] {
        torch::NoGradGuard no_grad;
        objective.eval();
        return objective.loss({.x = x}).item<double>();
      };
      const double before = loss();
      const auto report = fit(objective, *data, nullptr,
                              {.batch_size = 100, .steps = 15, .learning_rate = 1e-2, .checkpoint_seconds = 0});
      EXPECT_EQ(report.skipped_steps, 0);
      EXPECT_LT(loss(), before);
    }
}

/// The shared passes of the fast path, against the same loss by separate ones.
TEST(FreeFormInjective, TheGradientIsThatOfTheLossWrittenOut) {
  torch::manual_seed(8);
  const auto flow = small_flow("injective");
  const auto x = torch::randn({32, 4}, torch::kFloat64);
  FreeFormInjective objective(flow, {.beta = 3, .probes = 2});
  objective.train();
  const auto got = torch::autograd::grad({objective.loss({.x = x})}, flow->parameters());
  auto& layers = static_cast<Sequential&>(*flow->layers());
  const auto z = layers.forward_value(x, {}), back = layers.inverse_value(z, {});
  const auto probes = std::sqrt(2.0) * unit_tangents(z.detach());
  const auto tangents = layers.push_inverse(z.detach(), probes, {}).tangents.detach();
  const auto carried = layers.push_forward(x, tangents, {}).tangents;
  const auto loss = -flow->base()->log_prob(z) - (probes * carried).sum(-1).mean(0) + 3 * (x - back).square().sum(-1);
  const auto want = torch::autograd::grad({loss.mean()}, flow->parameters());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(torch::allclose(got[i], want[i], 1e-10, 1e-10)) << i;
}

TEST(FreeFormInjective, RowsOfWeightZeroDoNotCount) {
  const auto flow = small_flow("injective");
  FreeFormInjective objective(flow, {.probes = 2});
  auto x = torch::randn({20, 4}, torch::kFloat64);
  auto weight = torch::ones({20}, torch::kFloat64);
  weight.slice(0, 10).zero_();
  objective.train();
  EXPECT_NEAR(objective.loss({.x = x, .weight = weight}).item<double>(),
              objective.loss({.x = x.slice(0, 0, 10)}).item<double>(), 1e-10);
}

TEST(FreeFormInjective, WhatCannotBeTrainedIsRefused) {
  const auto full = build_flow(recipe("realnvp", {.features = 3, .width = 8}));
  EXPECT_SAYS(FreeFormInjective(full, {}), "free_form_injective: the flow has no injective layer");
  const auto flow = small_flow("injective");
  EXPECT_SAYS(FreeFormInjective(flow, {.beta = 0}), "beta: must be above 0 and finite, got 0");
  EXPECT_SAYS(FreeFormInjective(flow, {.probes = 3}), "probes: must be at most the latent dimension 2, got 3");
  EXPECT_SAYS(FreeFormInjective(flow, {.noise = -1}), "noise: must not be negative");
  EXPECT_SAYS(FreeFormInjective(flow, {.warmup_steps = -1}), "warmup_steps");
  EXPECT_SAYS(FreeFormInjective(flow, {.volume = "of"}), "volume: unknown value 'of'");
  EXPECT_SAYS(MaximumLikelihood{flow}, "maximum_likelihood: an injective flow");
}

TEST(InjectiveRecipes, DimensionsThatMakeNoManifoldAreRefused) {
  for (const auto* name : {"injective", "rectangular", "conformal"}) {
    EXPECT_SAYS(recipe(name, {.features = 4}), "latent: ");
    EXPECT_SAYS(recipe(name, {.features = 4, .latent = 4}),
                "latent: must be at least 1 and below the 4 features, got 4");
    EXPECT_SAYS(recipe(name, {.features = 4, .latent = -1}), "latent: must be at least 1");
    EXPECT_SAYS(recipe(name, {.features = 4, .context = 1, .latent = 2}), "context: ");
  }
  EXPECT_SAYS(recipe("nsf", {.features = 4, .latent = 2}), "latent: has no meaning for nsf");
  const auto layer = [](const Json& options) {
    Json spec = {{"type", "free_form"}, {"features", 4}, {"latent", 2}};
    spec.update(options);
    return build_layer(spec);
  };
  EXPECT_SAYS(layer({{"latent", 4}}), "latent: must be below the 4 features, got 4");
  EXPECT_SAYS(layer({{"latent", 0}}), "latent: must be at least 1, got 0");
  EXPECT_SAYS(layer({{"encoder", {{"activation", "relu"}}}}), "encoder/activation: must be silu, tanh or softplus");
  EXPECT_SAYS(layer({{"decoder", {{"width", 0}}}}), "decoder/width: must be at least 1");
  EXPECT_SAYS(build_layer({{"type", "conformal"}, {"features", 4}, {"latent", 2}, {"reflections", 3}}),
              "reflections: must be even, got 3");
}

}  // namespace
}  // namespace diffeo::testing
