// Base distributions where they are hard to compute, and against values that are known.
#include <ATen/ops/special_i0e.h>
#include <ATen/ops/special_i1e.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <cmath>
#include <numbers>

#include "diffeo/flows/resampled.h"
#include "flows/density.h"

namespace diffeo::testing {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

DistributionPtr made(const Json& spec, torch::Dtype dtype = torch::kFloat64) {
  torch::manual_seed(6);
  const auto distribution = build_distribution(spec);
  distribution->to(dtype);
  distribution->eval();
  return distribution;
}

double log_prob(Distribution& distribution, const std::vector<double>& x) {
  return distribution.log_prob(torch::tensor(x, distribution.tensor_options())).item<double>();
}

std::string problem(const Json& spec) {
  try {
    build_distribution(spec);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

void set(Distribution& distribution, const std::string& name, const Tensor& value) {
  torch::NoGradGuard no_grad;
  distribution.named_parameters()[name].copy_(value);
}

TEST(StudentT, AgreesWithTheFormulaAndWithTheNormalForManyDegrees) {
  const auto of_degrees = [](double nu, torch::Dtype dtype) {
    return made({{"type", "student_t"}, {"features", 1}, {"degrees", nu}}, dtype);
  };
  for (double nu : {1.5, 4.0, 19.9, 20.1, 300.0}) {
    const double x = 1.7, want = std::lgamma((nu + 1) / 2) - std::lgamma(nu / 2) -
                                 0.5 * std::log(nu * std::numbers::pi) - (nu + 1) / 2 * std::log1p(x * x / nu);
    // The start value passes through a float32 parameter.
    EXPECT_NEAR(log_prob(*of_degrees(nu, torch::kFloat64), {x}), want, 1e-6) << nu;
    EXPECT_NEAR(log_prob(*of_degrees(nu, torch::kFloat32), {x}), want, 1e-5) << nu;
  }
  const double normal = -0.5 * (1.7 * 1.7 + std::log(2 * std::numbers::pi));
  EXPECT_NEAR(log_prob(*of_degrees(1e7, torch::kFloat32), {1.7}), normal, 1e-5);
}

TEST(VonMises, AnyConcentrationHasAFiniteDensityAndDrawsOfItsWidth) {
  for (auto dtype : {torch::kFloat32, torch::kFloat64}) {
    for (double kappa : {1e-6, 0.1, 2.0, 1e3, 1e6, 1e10}) {
      const auto distribution = made({{"type", "von_mises"}, {"features", 1}, {"concentration", kappa}}, dtype);
      torch::NoGradGuard no_grad;
      const auto [x, log_prob] = distribution->draw({20000});
      EXPECT_TRUE(log_prob.isfinite().all().item<bool>()) << kappa;
      EXPECT_TRUE(x.abs().le(std::numbers::pi + 1e-6).all().item<bool>()) << kappa;
      // 1 - E cos x = 1 - I1 / I0, which is 1 / (2 kappa) for large kappa.
      const auto bessel = torch::tensor(kappa, torch::kDouble);
      const double want =
          kappa > 1e4 ? 0.5 / kappa : 1 - (at::special_i1e(bessel) / at::special_i0e(bessel)).item<double>();
      const auto values = 2 * (x.to(torch::kDouble) / 2).sin().square();
      const double error = values.std().item<double>() / std::sqrt(20000.0);
      // Angles in float32 near pi and below 1e-7 are rounded.
      EXPECT_NEAR(values.mean().item<double>(), want, 4 * error + 1e-6 * want) << "kappa " << kappa << " seed 6";
    }
  }
}

TEST(VonMises, NaNIsDrawnRatherThanWaitedFor) {
  const auto distribution = made({{"type", "von_mises"}, {"features", 2}});
  set(*distribution, "log_concentration", torch::full({2}, std::nan(""), torch::kDouble));
  EXPECT_TRUE(distribution->sample(3).isnan().all().item<bool>());
}

TEST(Uniform, IsMinusInfinityOutsideOnly) {
  const auto distribution = made({{"type", "uniform"}, {"features", 2}, {"lower", {-1.0, 2.0}}, {"upper", 3.0}});
  EXPECT_NEAR(log_prob(*distribution, {0, 2.5}), -std::log(4.0), 1e-12);
  EXPECT_NEAR(log_prob(*distribution, {-1, 3}), -std::log(4.0), 1e-12) << "the ends belong to it";
  EXPECT_EQ(log_prob(*distribution, {0, 3.01}), -infinity);
  EXPECT_EQ(log_prob(*distribution, {-1.01, 2.5}), -infinity);
  EXPECT_EQ(log_prob(*distribution, {std::nan(""), 2.5}), -infinity);
  // 0.7 in float32 is below 0.7.
  EXPECT_EQ(log_prob(*made({{"type", "uniform"}, {"features", 1}, {"upper", 0.7}}), {0.7}), -std::log(0.7));
  EXPECT_EQ(problem({{"type", "uniform"}, {"features", 2}, {"lower", {1.0, 2.0, 3.0}}}),
            "lower: expected a number or a list of 2, got [1.0,2.0,3.0]");
  EXPECT_EQ(problem({{"type", "uniform"}, {"features", 1}, {"lower", 1.0}}),
            "upper: must be above lower, got [1, 1] for feature 0");
}

TEST(Logistic, IsFiniteFarOut) {
  const auto distribution = made({{"type", "logistic"}, {"features", 1}}, torch::kFloat32);
  auto x = torch::tensor({{-1e4}, {0.0}, {1e4}}, torch::kFloat32).requires_grad_();
  const auto log_prob = distribution->log_prob(x);
  EXPECT_TRUE(torch::allclose(log_prob.detach(), torch::tensor({-1e4, -2 * std::log(2.0), -1e4}, torch::kFloat32)));
  log_prob.sum().backward();
  EXPECT_TRUE(torch::allclose(x.grad().flatten(), torch::tensor({1.0, 0.0, -1.0}, torch::kFloat32)));
}

TEST(FullNormal, HasTheCovarianceOfItsFactor) {
  const auto distribution = made({{"type", "full_normal"}, {"features", 2}});
  set(*distribution, "mean", torch::tensor({1.0, -2.0}, torch::kDouble));
  set(*distribution, "cholesky", torch::tensor({{std::log(2.0), 99.0}, {0.5, std::log(3.0)}}, torch::kDouble));
  // L = [[2, 0], [0.5, 3]]: at mean + L (1, 1), z = (1, 1).
  EXPECT_NEAR(log_prob(*distribution, {3, 1.5}), -1 - std::log(2 * std::numbers::pi) - std::log(6.0), 1e-12);
}

TEST(Mixture, DrawsComponentsByTheirWeights) {
  const auto distribution = made({{"type", "mixture"}, {"features", 1}, {"components", 2}});
  set(*distribution, "means", torch::tensor({{-50.0}, {50.0}}, torch::kDouble));
  set(*distribution, "logits", torch::tensor({0.0, std::log(3.0)}, torch::kDouble));
  const double right = (distribution->sample(20000) > 0).to(torch::kDouble).mean().item<double>();
  EXPECT_NEAR(right, 0.75, 4 * std::sqrt(0.75 * 0.25 / 20000)) << "seed 6";
}

TEST(Resampled, AConstantAcceptanceLeavesTheNormalAsItIs) {
  const auto distribution = made({{"type", "resampled"}, {"features", 2}, {"net", {{"init_scale", 0.0}}}});
  EXPECT_NEAR(log_prob(*distribution, {0.3, -1.2}), -0.5 * (0.3 * 0.3 + 1.2 * 1.2) - std::log(2 * std::numbers::pi),
              1e-12);
}

TEST(Resampled, IsNormalisedInEvaluationAfterTraining) {
  const auto distribution =
      made({{"type", "resampled"}, {"features", 1}, {"net", {{"width", 8}, {"init_scale", 2.0}}}});
  distribution->train();
  const auto x = 2 + 0.3 * torch::randn({256, 1}, torch::kDouble);
  const auto parameters = distribution->parameters();
  double first = 0, last = 0;
  for (int step = 0; step < 100; ++step) {
    const auto loss = -distribution->log_prob(x).mean();
    const auto grads = torch::autograd::grad({loss}, parameters);
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < grads.size(); ++i) parameters[i].sub_(grads[i], 0.05);
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  EXPECT_LT(last, first - 0.5) << "learned nothing: " << first << " to " << last;
  distribution->eval();
  torch::NoGradGuard no_grad;
  const auto grid = grid_over(distribution->space(), 20000, 5);
  EXPECT_NEAR((distribution->log_prob(grid.points).exp() * grid.volumes).sum().item<double>(), 1, 1e-3);
  const auto before = distribution->log_prob(x);
  EXPECT_TRUE(torch::equal(distribution->log_prob(x), before)) << "evaluation draws nothing at random";
}

TEST(Bases, WrongOptionsAreRefused) {
  EXPECT_EQ(problem({{"type", "student_t"}, {"features", 1}, {"degrees", 1.0}}), "degrees: must be above 1, got 1");
  EXPECT_EQ(problem({{"type", "mixture"}, {"features", 1}, {"components", 0}}),
            "components: must be at least 1, got 0");
  EXPECT_EQ(problem({{"type", "conditional_normal"}, {"features", 1}, {"context", 0}}),
            "context: must be at least 1, got 0");
  EXPECT_EQ(problem({{"type", "resampled"}, {"features", 1}, {"truncation", 1}}),
            "truncation: must be at least 2, got 1");
  EXPECT_EQ(problem({{"type", "von_mises"}, {"features", 0}}), "features: must be at least 1, got 0");
}

}  // namespace
}  // namespace diffeo::testing
