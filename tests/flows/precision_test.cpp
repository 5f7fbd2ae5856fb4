// Conditioners that multiply in bfloat16: what they are good for, and where they are refused.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "diffeo/flows/recipes.h"
#include "trainers/rows.h"

namespace diffeo::testing {
namespace {

FlowPtr flow_in(const std::string& precision) {
  torch::manual_seed(1);
  return build_flow(recipe("nsf", {.features = 2, .layers = 4, .width = 32, .precision = precision}));
}

double loss_after_training(const std::string& precision) {
  const Rows train({moons(4000, 7)}), valid({moons(2000, 8)});
  MaximumLikelihood objective(flow_in(precision));
  return fit(objective, train, &valid, {.batch_size = 250, .steps = 300, .learning_rate = 5e-3, .seed = 7})
      .best_valid_loss;
}

TEST(Precision, MoonsAreLearnedAsWell) {
  const auto full = loss_after_training("full"), rounded = loss_after_training("bfloat16");
  EXPECT_NEAR(rounded, full, 0.03);
  EXPECT_NE(rounded, full);
}

TEST(Precision, TheFlowIsStillABijectionWithItsLogDeterminant) {
  const auto flow = flow_in("bfloat16");
  flow->eval();
  torch::NoGradGuard no_grad;
  for (auto& parameter : flow->parameters()) parameter.add_(torch::randn_like(parameter), 0.05);
  const auto x = torch::randn({500, 2});
  const auto there = flow->to_latent(x);
  const auto back = flow->to_data(there.value);
  // Features that come back with other last bits may round another way in the next conditioner: most do not.
  EXPECT_LT((back.value - x).abs().median().item<double>(), 1e-5);
  EXPECT_LT((back.value - x).abs().max().item<double>(), 0.05);
  EXPECT_LT((back.log_det + there.log_det).abs().median().item<double>(), 1e-4);
}

TEST(Precision, IsRefusedWhereItHasNoMeaning) {
  const auto message = [](const std::string& name, const RecipeOptions& options) {
    try {
      build_flow(recipe(name, options));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(message("nsf", {.features = 2, .precision = "float8"}).find("unknown value 'float8'"), std::string::npos);
  EXPECT_NE(message("nsf", {.features = 2, .dropout = 0.1, .precision = "bfloat16"}).find("without dropout"),
            std::string::npos);
  EXPECT_NE(message("maf", {.features = 2, .precision = "bfloat16"}).find("masked networks compute in full precision"),
            std::string::npos);
}

}  // namespace
}  // namespace diffeo::testing
