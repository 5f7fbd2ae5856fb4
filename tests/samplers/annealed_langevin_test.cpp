#include "diffeo/samplers/annealed_langevin.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "diffeo/layers/base/random.h"

namespace diffeo::testing {
namespace {

/// Normal with correlation 0.8, mean (1, -1), of another scale.
class Slanted : public LogDensity {
 public:
  Slanted() : LogDensity(Space::reals(2)) {}
  static Tensor covariance() { return torch::tensor({{1.0, 0.8}, {0.8, 1.0}}, torch::kFloat64); }

 private:
  Tensor evaluate(const Tensor& x) override {
    const auto from = x - torch::tensor({1.0, -1.0}, x.options());
    return -0.5 * (from.matmul(torch::linalg_inv(covariance())) * from).sum(-1) + 3;
  }
};

TEST(AnnealedLangevin, ReachesANormal) {
  Slanted density;
  const SeedGuard seed(1);
  const auto x = annealed_langevin(density, 5 * torch::randn({20000, 2}, torch::kFloat64),
                                   {.steps = 600, .first_step = 0.1, .last_step = 0.005});
  const auto mean = x.mean(0), from = x - mean;
  const auto covariance = from.t().mm(from) / 20000;
  EXPECT_LT((mean - torch::tensor({1.0, -1.0}, torch::kFloat64)).abs().max().item<double>(), 0.05) << "seed 1";
  EXPECT_LT((covariance - Slanted::covariance()).abs().max().item<double>(), 0.06) << "seed 1";
}

TEST(AnnealedLangevin, FillsInGivenTheRest) {
  Slanted density;
  const SeedGuard seed(2);
  auto start = torch::randn({20000, 2}, torch::kFloat64);
  start.select(1, 0).fill_(2);
  const auto x = annealed_langevin(density, start, {.steps = 400, .first_step = 0.05, .last_step = 0.003},
                                   torch::tensor({0.0, 1.0}));
  EXPECT_TRUE((x.select(1, 0) == 2).all().item<bool>());
  // Given the first coordinate the second is normal with mean -1 + 0.8 (2 - 1) and variance 1 - 0.64.
  EXPECT_NEAR(x.select(1, 1).mean().item<double>(), -0.2, 0.03) << "seed 2";
  EXPECT_NEAR(x.select(1, 1).var().item<double>(), 0.36, 0.03) << "seed 2";
}

TEST(AnnealedLangevin, WithoutHeatItClimbs) {
  Slanted density;
  const auto x = annealed_langevin(
      density, torch::zeros({3, 2}, torch::kFloat64),
      {.steps = 2000, .first_step = 0.1, .last_step = 0.1, .first_temperature = 0, .last_temperature = 0});
  EXPECT_TRUE(torch::allclose(x, torch::tensor({{1.0, -1.0}}, torch::kFloat64).expand({3, 2}), 1e-6, 1e-6));
}

TEST(AnnealedLangevin, StepsTooLargeAndBadOptionsAreRefused) {
  Slanted density;
  const auto start = torch::randn({3, 2}, torch::kFloat64);
  EXPECT_THROW(annealed_langevin(density, start, {.steps = 2000, .first_step = 50, .last_step = 50}), Error);
  EXPECT_THROW(annealed_langevin(density, start, {.steps = 0}), SpecError);
  EXPECT_THROW(annealed_langevin(density, start, {.first_step = -1}), SpecError);
  EXPECT_THROW(annealed_langevin(density, start, {.last_temperature = -1}), SpecError);
  EXPECT_THROW(annealed_langevin(density, torch::randn({3, 5}), {}), Error);
}

}  // namespace
}  // namespace diffeo::testing
