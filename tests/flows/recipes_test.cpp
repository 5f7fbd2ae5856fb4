// Every recipe writes a spec that builds, and the flow it makes is a density.
#include "diffeo/flows/recipes.h"

#include <gtest/gtest.h>
#include <torch/types.h>

namespace diffeo::testing {
namespace {

class Recipes : public ::testing::TestWithParam<std::string> {
 protected:
  /// A small flow with parameters away from their initial values.
  static FlowPtr built(int64_t features, int64_t context = 0) {
    torch::manual_seed(3);
    auto flow = build_flow(recipe(GetParam(), {.features = features, .context = context, .layers = 2, .width = 16}));
    torch::NoGradGuard no_grad;
    for (auto& parameter : flow->parameters()) parameter.add_(torch::randn_like(parameter), 0.1);
    flow->eval();
    return flow;
  }
};

TEST_P(Recipes, DrawnPointsHaveTheDensityThatTheyCameWith) {
  for (int64_t context : {0, 2}) {
    const auto flow = built(4, context);
    const auto c = context > 0 ? torch::randn({64, context}) : torch::Tensor();
    torch::NoGradGuard no_grad;
    const auto [x, log_prob] = flow->draw({64}, c);
    EXPECT_TRUE(log_prob.isfinite().all().item<bool>());
    EXPECT_TRUE(torch::allclose(flow->log_prob(x, c), log_prob, 1e-3, 1e-3));
  }
}

TEST_P(Recipes, SpecIsComplete) {
  const auto flow = built(4);
  EXPECT_EQ(build_flow(flow->spec())->spec(), flow->spec());
}

std::vector<std::string> every_recipe() {
  std::vector<std::string> names;
  for (const auto& recipe : all_recipes()) names.push_back(recipe.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Every, Recipes, ::testing::ValuesIn(every_recipe()), [](const auto& info) {
  auto name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(Recipe, UnknownNamesAndOptionsAreRefused) {
  const auto message = [](const std::string& name, const RecipeOptions& options) {
    try {
      recipe(name, options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message("nfs", {.features = 2}).find("recipe: unknown value 'nfs'; did you mean 'nsf'?"), 0u);
  EXPECT_EQ(message("nsf", {}), "features: must be at least 1, got 0");
  EXPECT_EQ(message("nsf", {.features = 2, .linear = "li"}).find("linear: unknown value 'li'; did you mean 'lu'?"), 0u);
}

}  // namespace
}  // namespace diffeo::testing
