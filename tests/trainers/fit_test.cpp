// The training loop: what it must reach, and what it must never do.
#include "diffeo/trainers/fit.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <fstream>
#include <numbers>

#include "diffeo/layers/base/random.h"
#include "trainers/rows.h"

namespace diffeo::testing {
namespace {

constexpr uint64_t seed = 7;

/// The mean negative log likelihood of points under the normal distribution fitted to them, nats.
double gaussian_loss(const Tensor& x) {
  const auto covariance = torch::cov(x.t());
  return 0.5 * std::log((2 * std::numbers::pi * std::numbers::e * covariance).det().item<double>());
}

TEST(Fit, LearnsMoonsFarBetterThanANormalDistribution) {
  SCOPED_TRACE(c10::str("seed ", seed));
  const Rows train({moons(4000, seed)}), valid({moons(2000, seed + 1)});
  MaximumLikelihood objective(small_flow(2, seed, {{"width", 32}}, 4));
  const auto report =
      fit(objective, train, &valid, {.batch_size = 250, .steps = 600, .learning_rate = 5e-3, .seed = seed});
  EXPECT_EQ(report.ended, "steps");
  EXPECT_EQ(report.steps, 600);
  EXPECT_EQ(report.history.size(), 38u);  // 37 whole epochs of 16 steps, and the end
  const double bound = gaussian_loss(moons(2000, seed + 1));
  EXPECT_LT(report.best_valid_loss, bound - 0.8) << "a normal distribution has " << bound;
  torch::NoGradGuard no_grad;
  EXPECT_FALSE(objective.is_training());
  EXPECT_NEAR(objective.loss({moons(2000, seed + 1)}).item<double>(), report.best_valid_loss, 1e-4);
}

}  // namespace
}  // namespace diffeo::testing
