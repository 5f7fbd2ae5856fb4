#include "diffeo/trainers/mixed_model.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <numbers>

#include "data/scratch.h"
#include "diffeo/layers/base/random.h"
#include "diffeo/trainers/tail_probability.h"

namespace diffeo::testing {
namespace {

constexpr uint64_t seed = 41;
const auto f64 = torch::TensorOptions(torch::kFloat64);

/// The model with matrices inverted as they are.
struct Dense {
  Tensor k, w, y;

  Tensor inverse(double lambda) const { return torch::linalg_inv(lambda * k + torch::eye(k.size(0), f64)); }

  /// Generalised least squares with columns a: effects, (a^T H^-1 a)^-1, residual y^T P y, log determinants.
  struct Solved {
    Tensor effects, inverse;
    double residual, log_det_h, log_det_a, log_det_plain;
  };
  Solved solve(const Tensor& a, double lambda) const {
    const auto h = inverse(lambda);
    const auto gram = a.t().matmul(h).matmul(a);
    Solved solved;
    solved.inverse = torch::linalg_inv(gram);
    solved.effects = solved.inverse.matmul(a.t().matmul(h).matmul(y));
    const auto left = y - a.matmul(solved.effects);
    solved.residual = left.dot(h.matmul(left)).item<double>();
    solved.log_det_h = -std::get<1>(torch::slogdet(h)).item<double>();
    solved.log_det_a = std::get<1>(torch::slogdet(gram)).item<double>();
    solved.log_det_plain = std::get<1>(torch::slogdet(a.t().matmul(a))).item<double>();
    return solved;
  }
  double likelihood(const Tensor& a, double lambda, bool restricted) const {
    const auto s = solve(a, lambda);
    const double n = static_cast<double>(y.size(0)), freedom = restricted ? n - static_cast<double>(a.size(1)) : n;
    double value = freedom / 2 * (std::log(freedom / (2 * std::numbers::pi)) - 1) - s.log_det_h / 2 -
                   freedom / 2 * std::log(s.residual);
    if (restricted) value += s.log_det_plain / 2 - s.log_det_a / 2;
    return value;
  }
  double best(const Tensor& a, bool restricted) const {
    double low = std::log(1e-5), high = std::log(1e5), step = 0.25, best = low;
    for (int round = 0; round < 12; ++round, step /= 4) {
      double found = -INFINITY;
      for (double at = low; at <= high + 1e-12; at += step)
        if (const double value = likelihood(a, std::exp(at), restricted); value > found) found = value, best = at;
      low = std::max(std::log(1e-5), best - step), high = std::min(std::log(1e5), best + step);
    }
    return std::exp(best);
  }
};

class MixedModels : public ::testing::Test {
 protected:
  void SetUp() override {
    const int64_t n = 40;
    const auto l = torch::eye(10, f64).repeat_interleave(4, 0) + 0.2 * torch::randn({n, 10}, f64);
    relatedness = l.matmul(l.t());
    covariate = torch::randn({n, 1}, f64);
    markers = torch::randint(3, {n, 6}, f64);
    const auto values = torch::randn({10}, f64);
    y = l.matmul(values) + 0.8 * torch::randn({n}, f64) + 0.5 * covariate.squeeze(1) + 0.4 * markers.select(1, 2);
    const auto mean = relatedness.mean(0, true);
    dense = {relatedness - mean - mean.t() + mean.mean(), torch::cat({torch::ones({n, 1}, f64), covariate}, 1), y};
  }
  const SeedGuard guard{seed};
  Tensor relatedness, covariate, markers, y;
  Dense dense;
};

TEST_F(MixedModels, TheNullIsTheDenseFormula) {
  const auto null = MixedModel(relatedness, covariate).null(y);
  EXPECT_NEAR(std::log(null.lambda_reml), std::log(dense.best(dense.w, true)), 1e-5);
  EXPECT_NEAR(std::log(null.lambda_ml), std::log(dense.best(dense.w, false)), 1e-5);
  EXPECT_NEAR(null.log_likelihood_reml, dense.likelihood(dense.w, null.lambda_reml, true), 1e-8);
  EXPECT_NEAR(null.log_likelihood_ml, dense.likelihood(dense.w, null.lambda_ml, false), 1e-8);
  const double mean = dense.k.trace().item<double>() / 40, lambda = null.lambda_reml;
  EXPECT_NEAR(null.variance_explained, lambda * mean / (1 + lambda * mean), 1e-10);
  // The delta method on the share, with the curvature of the restricted likelihood in it.
  const auto of_share = [&](double share) { return dense.likelihood(dense.w, share / (1 - share) / mean, true); };
  const double h = 1e-3, at = null.variance_explained;
  const double curvature = (of_share(at + h) - 2 * of_share(at) + of_share(at - h)) / (h * h);
  EXPECT_NEAR(null.standard_error, std::sqrt(-1 / curvature), 1e-3 * null.standard_error);
}

TEST_F(MixedModels, AssociationsAreTheDenseFormula) {
  const MixedModel model(relatedness, covariate);
  const auto found = model.associate(y, model.rotated(markers));
  const auto null = model.null(y);
  for (int64_t i = 0; i < markers.size(1); ++i) {
    SCOPED_TRACE(c10::str("marker ", i));
    const auto a = torch::cat({dense.w, markers.narrow(1, i, 1)}, 1);
    const auto at = [&](const Tensor& values) { return values[i].item<double>(); };
    const double reml = dense.best(a, true), ml = dense.best(a, false);
    EXPECT_NEAR(std::log(at(found.lambda_reml)), std::log(reml), 1e-5);
    EXPECT_NEAR(std::log(at(found.lambda_ml)), std::log(ml), 1e-5);
    const auto s = dense.solve(a, at(found.lambda_reml));
    const double freedom = 40 - 3, effect = s.effects[2].item<double>();
    const double error = std::sqrt(s.inverse[2][2].item<double>() * s.residual / freedom);
    EXPECT_NEAR(at(found.effect), effect, 1e-9);
    EXPECT_NEAR(at(found.standard_error), error, 1e-9);
    EXPECT_NEAR(at(found.wald), f_tail(effect * effect / (error * error), 1, freedom), 1e-9);
    const double ratio = 2 * (dense.likelihood(a, ml, false) - null.log_likelihood_ml);
    EXPECT_NEAR(at(found.likelihood_ratio), chi_squared_tail(ratio), 1e-7);
    // The score test sees the marker at the null's lambda only.
    const auto without = dense.solve(dense.w, null.lambda_ml), with = dense.solve(a, null.lambda_ml);
    EXPECT_NEAR(at(found.score), f_tail(40 * (without.residual - with.residual) / without.residual, 1, freedom), 1e-9);
  }
}

TEST_F(MixedModels, WithTheStrengthOfTheNullTheWaldTestIsThatAtItsLambda) {
  const MixedModel model(relatedness, covariate);
  const auto found = model.associate(y, model.rotated(markers), MixedModel::Strength::of_the_null);
  const double lambda = model.null(y).lambda_reml;
  const auto a = torch::cat({dense.w, markers.narrow(1, 2, 1)}, 1);
  EXPECT_NEAR(found.effect[2].item<double>(), dense.solve(a, lambda).effects[2].item<double>(), 1e-9);
  EXPECT_EQ(found.lambda_reml[2].item<double>(), lambda);
}

TEST_F(MixedModels, AConstantMarkerAndOneThatTheCovariatesExplainHaveNoSay) {
  const MixedModel model(relatedness, covariate);
  const auto some = torch::cat({torch::full({40, 1}, 2.0, f64), 1 + 0.5 * covariate}, 1);
  const auto found = model.associate(y, model.rotated(some));
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(found.effect[i].item<double>(), 0);
    EXPECT_EQ(found.wald[i].item<double>(), 1);
    EXPECT_EQ(found.score[i].item<double>(), 1);
  }
}

TEST_F(MixedModels, WithoutRelationsAPhenotypeHasLeastSquares) {
  const MixedModel model(torch::eye(40, f64));  // whatever lambda is, the weights of all rows are the same
  const auto found = model.associate(y, model.rotated(markers));
  const auto x = markers.select(1, 0), centred = x - x.mean(), left = y - y.mean();
  EXPECT_NEAR(found.effect[0].item<double>(), (centred.dot(left) / centred.dot(centred)).item<double>(), 1e-9);
}

TEST_F(MixedModels, SayWhatIsWrong) {
  EXPECT_ERROR(MixedModel(relatedness.narrow(0, 0, 30)), "must be square, got shape [30, 40]");
  auto skew = relatedness.clone();
  skew[3][5] += 1;
  EXPECT_ERROR(MixedModel{skew}, "must be symmetric, but entry (");
  EXPECT_ERROR(MixedModel(relatedness, covariate.narrow(0, 0, 30)),
               "as the relatedness matrix has 40 rows, got [30, 1]");
  EXPECT_ERROR(MixedModel(relatedness, torch::ones({40, 1}, f64)), "linearly dependent");
  EXPECT_ERROR(MixedModel(torch::ones({40, 40}, f64)), "nobody is related");
  EXPECT_ERROR(MixedModel(relatedness.narrow(0, 0, 3).narrow(1, 0, 3)), "3 individuals are too few");
  const MixedModel model(relatedness);
  EXPECT_ERROR(model.null(y.narrow(0, 0, 39)), "expected a phenotype of shape (40)");
  EXPECT_ERROR(model.null(torch::ones({40}, f64)), "is the same for all");
  auto gap = y.clone();
  gap[7] = std::nan("");
  EXPECT_ERROR(model.null(gap), "not finite");
  EXPECT_ERROR(model.associate(y, markers), "expected rotated markers of shape (M, 40)");
}

}  // namespace
}  // namespace diffeo::testing
