// Every recipe writes a spec that builds, and the flow it makes is a density.
#include "diffeo/flows/recipes.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "flows/density.h"

namespace diffeo::testing {
namespace {

/// A small flow with parameters away from their initial values.
FlowPtr small_flow(const std::string& name, const RecipeOptions& options, torch::Dtype dtype = torch::kFloat64) {
  torch::manual_seed(3);
  auto flow = build_flow(recipe(name, options));
  flow->to(dtype);
  torch::NoGradGuard no_grad;
  for (auto& parameter : flow->parameters()) parameter.add_(torch::randn_like(parameter), 0.1);
  flow->eval();
  return flow;
}

double integral(Distribution& flow, int64_t per_axis, const Tensor& context = {}) {
  torch::NoGradGuard no_grad;
  const auto grid = grid_over(flow.space(), per_axis, 7);
  double sum = 0;
  const auto points = grid.points.split(1 << 17), volumes = grid.volumes.split(1 << 17);
  for (size_t i = 0; i < points.size(); ++i)
    sum += (flow.log_prob(points[i], context).exp() * volumes[i]).sum().item<double>();
  return sum;
}

TEST(RecipeOptions, InitScaleReachesEveryConditioner) {
  const auto scales = [](const std::string& name, double scale) {
    std::vector<double> found;
    const auto spec = recipe(name, {.features = 4, .layers = 2, .init_scale = scale});
    for (const auto& layer : spec["layers"])
      if (layer.contains("net")) found.push_back(layer["net"].value("init_scale", 0.1));
    return found;
  };
  for (const std::string name : {"realnvp", "nice", "nsf", "maf"}) {
    EXPECT_EQ(scales(name, 0.5), std::vector<double>(2, 0.5)) << name;
    EXPECT_EQ(scales(name, 0), std::vector<double>(2, name == "realnvp" ? 1e-3 : 0.1)) << name;
  }
  const auto refused = [](const std::string& name, double scale) {
    try {
      recipe(name, {.features = 4, .init_scale = scale});
    } catch (const SpecError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refused("ebflow", 1).find("init_scale: has no meaning for ebflow"), std::string::npos);
  EXPECT_NE(refused("nsf", -1).find("init_scale: must not be negative"), std::string::npos);
}

class Recipes : public ::testing::TestWithParam<std::string> {};

TEST_P(Recipes, DrawnPointsHaveTheDensityThatTheyCameWith) {
  for (auto dtype : {torch::kFloat32, torch::kFloat64}) {
    const double tolerance = dtype == torch::kFloat32 ? 2e-3 : 1e-7;
    for (int64_t context : {0, 2}) {
      const auto flow = small_flow(GetParam(), {.features = 5, .context = context, .layers = 3, .width = 16}, dtype);
      const auto c = context > 0 ? torch::randn({64, context}, dtype) : Tensor();
      torch::NoGradGuard no_grad;
      const auto [x, log_prob] = flow->draw({64}, c);
      EXPECT_TRUE(log_prob.isfinite().all().item<bool>());
      EXPECT_TRUE(torch::allclose(flow->log_prob(x, c), log_prob, tolerance, tolerance))
          << dtype << " context " << context;
    }
  }
}

TEST_P(Recipes, TheDensityOfTwoFeaturesIntegratesToOne) {
  const auto flow = small_flow(GetParam(), {.features = 2, .layers = 3, .width = 16});
  EXPECT_NEAR(integral(*flow, 400), 1, 1e-3) << "seed 3";
}

TEST_P(Recipes, TheSpecIsComplete) {
  const auto flow = small_flow(GetParam(), {.features = 4});
  EXPECT_EQ(build_flow(flow->spec())->spec(), flow->spec());
}

TEST_P(Recipes, ContextsAndSamplesHaveTheShapesThatTheDocsSay) {
  const auto flow = small_flow(GetParam(), {.features = 3, .context = 2, .layers = 2, .width = 8});
  const auto contexts = torch::randn({4, 2}, torch::kDouble);
  EXPECT_EQ(flow->context_size(), 2);
  EXPECT_EQ(flow->sample(5, contexts).sizes(), at::IntArrayRef({4, 5, 3}));
  EXPECT_EQ(flow->sample_paired(contexts).sizes(), at::IntArrayRef({4, 3}));
  EXPECT_THROW(flow->sample(5), Error);
  EXPECT_THROW(flow->log_prob(flow->sample_paired(contexts)), Error);
  const auto plain = small_flow(GetParam(), {.features = 3, .layers = 2, .width = 8});
  EXPECT_EQ(plain->sample(5).sizes(), at::IntArrayRef({5, 3}));
  EXPECT_THROW(plain->sample(5, contexts), Error);
  EXPECT_THROW(plain->log_prob(plain->sample(4), contexts), Error);
}

/// Row i of sample(n, context) belongs to context i: the density of a row under its own context is that of the pair.
TEST_P(Recipes, SamplesGoWithTheirContexts) {
  const auto flow = small_flow(GetParam(), {.features = 3, .context = 1, .layers = 2, .width = 8});
  const auto contexts = torch::tensor({{-2.0}, {2.0}}, torch::kDouble);
  const auto x = flow->sample(6, contexts);
  const auto all = flow->log_prob(x, contexts.unsqueeze(1));
  for (int64_t i = 0; i < 2; ++i)
    EXPECT_TRUE(torch::allclose(flow->log_prob(x[i], contexts[i].expand({6, 1})), all[i]));
}

std::vector<std::string> every_recipe() {
  std::vector<std::string> names;
  for (const auto& recipe : all_recipes())
    // These have tests of their own: they have no density everywhere, take images, or have no width.
    if (!recipe.injective && !recipe.images && recipe.name != "snf" && recipe.name != "augmented" &&
        recipe.name != "ebflow")
      names.push_back(recipe.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Every, Recipes, ::testing::ValuesIn(every_recipe()), [](const auto& info) {
  auto name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

std::string message(const std::string& name, const RecipeOptions& options) {
  try {
    recipe(name, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Recipe, UnknownNamesAndOptionsAreRefused) {
  EXPECT_EQ(message("nfs", {.features = 2}).find("recipe: unknown value 'nfs'; did you mean 'nsf'?"), 0u);
  EXPECT_EQ(message("nsf", {}), "features: must be at least 1, got 0");
  EXPECT_EQ(message("nsf", {.features = 2, .layers = -1}), "layers: must be at least 1, got -1");
  EXPECT_EQ(message("nsf", {.features = 2, .linear = "li"}).find("linear: unknown value 'li'; did you mean 'lu'?"), 0u);
  EXPECT_EQ(message("maf", {.features = 2, .bins = 4}), "bins: has no meaning for maf");
  EXPECT_EQ(message("ncsf", {.features = 2, .linear = "lu"}).find("linear: unknown value 'lu'"), 0u);
}

TEST(Recipe, OneFeatureMakesASplineOrAnErrorThatSaysSo) {
  for (const auto* name : {"nsf", "ncsf"}) {
    for (int64_t context : {0, 2}) {
      const auto flow = small_flow(name, {.features = 1, .context = context, .layers = 3, .width = 8});
      const auto c = context > 0 ? torch::randn({1, context}, torch::kDouble) : Tensor();
      EXPECT_NEAR(integral(*flow, 20000, c), 1, 1e-3) << name << " context " << context;
    }
  }
  for (const auto* name : {"nice", "realnvp", "glow", "maf", "iaf", "nsf-ar"})
    EXPECT_EQ(message(name, {.features = 1}),
              c10::str("features: ", name, " needs at least 2, got 1; nsf makes a flow of one feature"));
}

TEST(Recipe, EveryKindOfLinearLayerFits) {
  for (const auto* linear : {"lu", "permutation", "orthogonal", "none"}) {
    const auto flow = small_flow("nsf", {.features = 3, .layers = 2, .width = 8, .linear = linear});
    const auto [x, log_prob] = flow->draw({16});
    EXPECT_TRUE(torch::allclose(flow->log_prob(x), log_prob, 1e-7, 1e-7)) << linear;
  }
  const auto flow = small_flow("ncsf", {.features = 3, .layers = 2, .width = 8, .linear = "permutation"});
  EXPECT_NO_THROW(flow->draw({4}));
}

TEST(Recipe, AnyBaseOfTheRightSpaceCanBeChosen) {
  const auto flow = small_flow("realnvp", {.features = 2, .base = {{"type", "mixture"}, {"features", 2}}});
  EXPECT_EQ(flow->base()->spec()["type"], "mixture");
  EXPECT_EQ(
      small_flow("ncsf", {.features = 2, .base = {{"type", "von_mises"}, {"features", 2}}})->base()->spec()["type"],
      "von_mises");
  EXPECT_THROW(small_flow("nsf", {.features = 2, .base = {{"type", "uniform"}, {"features", 2}}}), Error);
}

TEST(Recipe, NsfHasTheSizesOfItsPeers) {
  const auto parameters = [](const RecipeOptions& options) {
    int64_t count = 0;
    for (const auto& parameter : build_flow(recipe("nsf", options))->parameters()) count += parameter.numel();
    return count;
  };
  // nflows 0.14 for quality.py's flow of 6 features: for each of 6 couplings of 3 and 3 features a residual network
  // 3-128-(4 x 128 x 128)-69, splines of 3 kept features, and an LU layer of 6.
  const int64_t net = (3 * 128 + 128) + 4 * (128 * 128 + 128) + (128 * 69 + 69), kept = 3 * 23, lu = 36 + 6;
  EXPECT_EQ(parameters({.features = 6}), 6 * (net + kept + lu));
}

TEST(Recipe, DeepAffineFlowsStayFiniteFarOut) {
  torch::manual_seed(7);
  const auto flow = build_flow(recipe("realnvp", {.features = 19, .layers = 32}));
  torch::NoGradGuard no_grad;
  const auto x = 1000 * torch::randn({1000, 19});
  const auto [z, log_det] = flow->to_latent(x);
  EXPECT_TRUE(z.isfinite().all().item<bool>() && log_det.isfinite().all().item<bool>());
  const auto [back, back_log_det] = flow->to_data(z);
  EXPECT_LT((back - x).abs().max().item<double>(), 0.01) << "seed 7";
  EXPECT_TRUE(torch::allclose(back_log_det, -log_det, 1e-3, 1e-3));
}

}  // namespace
}  // namespace diffeo::testing
