#include "diffeo/flows/row_dependence.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <cmath>
#include <numbers>

#include "data/scratch.h"
#include "diffeo/flows/normal.h"
#include "diffeo/layers/base/random.h"

namespace diffeo::testing {
namespace {

constexpr uint64_t seed = 21;
const auto f64 = torch::TensorOptions(torch::kFloat64);

Tensor strength(double value) { return torch::full({}, value, f64); }

/// log N(Z; 0, C) / n with C inverted as it is.
double dense_mean_log_prob(const Tensor& z, const Tensor& c) {
  const auto n = static_cast<double>(z.size(0)), d = static_cast<double>(z.size(1));
  const auto log_det = std::get<1>(torch::slogdet(c)).item<double>();
  const auto quadratic = (z * torch::linalg_inv(c).matmul(z)).sum().item<double>();
  return -0.5 * (n * d * std::log(2 * std::numbers::pi) + d * log_det + quadratic) / n;
}

Tensor block_covariance(const Tensor& groups, double rho) {
  const auto same = (groups.unsqueeze(0) == groups.unsqueeze(1)).to(torch::kFloat64);
  return (1 - rho) * torch::eye(groups.size(0), f64) + rho * same;
}

Tensor some_groups() { return torch::tensor({5, -1, 5, 8, 5, -1, 3}, torch::kInt64); }

/// A positive definite matrix with a unit diagonal.
Tensor some_relatedness(int64_t n) {
  const auto l = torch::randn({n, n + 2}, f64);
  const auto k = l.matmul(l.t());
  const auto scale = k.diagonal().rsqrt();
  return k * scale.unsqueeze(0) * scale.unsqueeze(1);
}

/// Calls `body` with each choice of `size` of 0, ..., n - 1.
template <class Body>
int each_subset(int64_t n, int64_t size, Body&& body) {
  int count = 0;
  for (int64_t mask = 0; mask < (int64_t{1} << n); ++mask) {
    std::vector<int64_t> chosen;
    for (int64_t i = 0; i < n; ++i)
      if (mask >> i & 1) chosen.push_back(i);
    if (static_cast<int64_t>(chosen.size()) != size) continue;
    body(torch::tensor(chosen));
    ++count;
  }
  return count;
}

/// The mean over all batches of a size is the value of all rows.
void expect_no_bias(const RowDependence& dependence, const Tensor& z, double s) {
  const auto n = z.size(0);
  const auto exact = dependence.estimate(z, torch::arange(n))(strength(s)).item<double>();
  for (int64_t size : {2, 3, 6}) {
    double sum = 0;
    const int count = each_subset(n, size, [&](const Tensor& rows) {
      sum += dependence.estimate(z.index_select(0, rows), rows)(strength(s)).item<double>();
    });
    EXPECT_NEAR(sum / count, exact, 1e-12) << "batches of " << size;
  }
}

class RowDependences : public ::testing::Test {
 protected:
  void SetUp() override { RecordProperty("seed", static_cast<int>(seed)); }
  const SeedGuard guard{seed};
};

TEST_F(RowDependences, StrengthZeroIsIndependentRows) {
  const auto z = torch::randn({7, 3}, f64), places = torch::arange(7);
  const double want = standard_normal_log_prob(z).mean().item<double>();
  EXPECT_NEAR(GroupedRows(some_groups()).estimate(z, places)(strength(0)).item<double>(), want, 1e-14);
  EXPECT_NEAR(GroupedRows::of_whole_groups(z, some_groups())(strength(0)).item<double>(), want, 1e-14);
  EXPECT_NEAR(RelatedRows::of_matrix(some_relatedness(7))->estimate(z, places)(strength(0)).item<double>(), want,
              1e-13);
  EXPECT_NEAR(RelatedRows::of_factor(torch::randn({7, 2}, f64))->estimate(z, places)(strength(0)).item<double>(), want,
              1e-13);
}

TEST_F(RowDependences, GroupsAreTheDenseFormula) {
  const auto z = torch::randn({7, 3}, f64);
  for (double rho : {0.0, 0.3, 0.9, 0.99}) {
    const double want = dense_mean_log_prob(z, block_covariance(some_groups(), rho));
    EXPECT_NEAR(GroupedRows(some_groups()).estimate(z, torch::arange(7))(strength(rho)).item<double>(), want, 1e-10);
    EXPECT_NEAR(GroupedRows::of_whole_groups(z, some_groups())(strength(rho)).item<double>(), want, 1e-10);
  }
}

TEST_F(RowDependences, TheDensityIsThatOfTheStackedVector) {
  const auto z = torch::randn({7, 2}, f64);
  const auto c = block_covariance(some_groups(), 0.6);
  const auto stacked = torch::kron(torch::eye(2, f64), c);  // columns, one below the other
  const auto vector = z.t().reshape({14, 1});
  EXPECT_NEAR(GroupedRows(some_groups()).estimate(z, torch::arange(7))(strength(0.6)).item<double>() * 7,
              dense_mean_log_prob(vector, stacked) * 14, 1e-10);
}

TEST_F(RowDependences, EigenvectorsAreTheDenseFormula) {
  const auto z = torch::randn({7, 3}, f64);
  const auto k = some_relatedness(7);
  const auto order = torch::tensor({3, 1, 0, 6, 5, 2, 4});
  for (double s : {0.2, 0.8, 0.99}) {
    const auto c = (1 - s) * torch::eye(7, f64) + s * k;
    EXPECT_NEAR(RelatedRows::of_matrix(k)->estimate(z, torch::arange(7))(strength(s)).item<double>(),
                dense_mean_log_prob(z, c), 1e-10);
    EXPECT_NEAR(RelatedRows::of_matrix(k)->estimate(z.index_select(0, order), order)(strength(s)).item<double>(),
                dense_mean_log_prob(z, c), 1e-10);
  }
}

TEST_F(RowDependences, ADiagonalIsBroughtToOne) {
  const auto z = torch::randn({7, 1}, f64), scale = torch::rand({7, 1}, f64) + 0.5;
  const auto k = some_relatedness(7);
  const auto value = [&](const Tensor& matrix) {
    return RelatedRows::of_matrix(matrix)->estimate(z, torch::arange(7))(strength(0.5)).item<double>();
  };
  EXPECT_NEAR(value(k * scale * scale.t()), value(k), 1e-12);
}

TEST_F(RowDependences, AFactorIsItsMatrix) {
  const auto z = torch::randn({7, 3}, f64), places = torch::arange(7);
  for (int64_t rank : {1, 3, 7}) {
    const auto factor = torch::randn({7, rank}, f64);
    const auto of_factor = RelatedRows::of_factor(factor),
               of_matrix = RelatedRows::of_matrix(factor.matmul(factor.t()));
    EXPECT_NEAR(of_factor->estimate(z, places)(strength(0.7)).item<double>(),
                of_matrix->estimate(z, places)(strength(0.7)).item<double>(), 1e-10);
    expect_no_bias(*of_factor, z, 0.7);
  }
}

TEST_F(RowDependences, BatchesHaveNoBias) {
  const auto z = torch::randn({7, 2}, f64);
  expect_no_bias(GroupedRows(some_groups()), z, 0.8);
  expect_no_bias(*RelatedRows::of_matrix(some_relatedness(7)), z, 0.8);
}

TEST_F(RowDependences, GradientsAgreeWithFiniteDifferences) {
  const auto k = some_relatedness(7);
  const auto places = torch::tensor({1, 2, 4, 6});
  const std::vector<RowDependencePtr> all{std::make_shared<GroupedRows>(some_groups()), RelatedRows::of_matrix(k),
                                          RelatedRows::of_factor(torch::randn({7, 2}, f64))};
  for (const auto& dependence : all) {
    auto z = torch::randn({4, 2}, f64).requires_grad_(true);
    auto s = strength(0.4).requires_grad_(true);
    const auto gradients = torch::autograd::grad({dependence->estimate(z, places)(s)}, {z, s});
    torch::NoGradGuard no_grad;
    const auto value = [&](const Tensor& at, double strength_at) {
      return dependence->estimate(at, places)(strength(strength_at)).item<double>();
    };
    EXPECT_NEAR(gradients[1].item<double>(), (value(z, 0.4 + 1e-5) - value(z, 0.4 - 1e-5)) / 2e-5, 1e-7);
    auto there = z.detach().clone(), back = z.detach().clone();
    there[2][1] += 1e-5, back[2][1] -= 1e-5;
    EXPECT_NEAR(gradients[0][2][1].item<double>(), (value(there, 0.4) - value(back, 0.4)) / 2e-5, 1e-7);
  }
}

TEST_F(RowDependences, TheLikeliestStrengthIsFoundAgain) {
  const int64_t groups = 400, members = 5;
  const auto group = torch::arange(groups).repeat_interleave(members);
  for (double rho : {0.0, 0.3, 0.8}) {
    const auto z = std::sqrt(rho) * torch::randn({groups, 2}, f64).index_select(0, group) +
                   std::sqrt(1 - rho) * torch::randn({groups * members, 2}, f64);
    const auto likelihood = GroupedRows(group).estimate(z, torch::arange(groups * members));
    const double found = best_strength(likelihood, z);
    EXPECT_NEAR(found, rho, 0.05);
    for (double other : {found - 0.01, found + 0.01})
      if (other >= 0) EXPECT_GE(likelihood(strength(found)).item<double>(), likelihood(strength(other)).item<double>());
  }
}

/// E[sigma^2] of maximum likelihood that ignores the dependence is 1 - sum_b m_b (1 + (m_b - 1) rho) / n^2.
TEST_F(RowDependences, IgnoringDependenceUnderestimatesTheVarianceAsTheorySays) {
  const auto group = torch::cat({torch::arange(4).repeat_interleave(50), torch::arange(4, 104)});
  const auto n = static_cast<double>(group.size(0));
  const double rho = 0.9, want = 1 - (200 * (1 + 49 * rho) + 100) / (n * n);
  double sum = 0, squares = 0;
  constexpr int replicates = 2000;
  for (int i = 0; i < replicates; ++i) {
    const auto z = std::sqrt(rho) * torch::randn({104}, f64).index_select(0, group) +
                   std::sqrt(1 - rho) * torch::randn({group.size(0)}, f64);
    const double variance = z.var(false).item<double>();
    sum += variance, squares += variance * variance;
  }
  const double mean = sum / replicates, error = std::sqrt((squares / replicates - mean * mean) / replicates);
  EXPECT_NEAR(mean, want, 4 * error);
  EXPECT_LT(error, 0.01);
}

TEST_F(RowDependences, SayWhatIsWrong) {
  const auto z = torch::randn({3, 2}, f64);
  const GroupedRows groups(some_groups());
  EXPECT_ERROR(groups.estimate(z, torch::tensor({0, 1, 7})), "a batch has row 7, but the structure is of 7 rows");
  EXPECT_ERROR(groups.estimate(z, torch::tensor({0, 1})), "expected latent rows (B, D) and places (B)");
  EXPECT_ERROR(groups.estimate(z, torch::zeros({3})), "places are integers");
  EXPECT_ERROR(GroupedRows(torch::zeros({3})), "groups: expected integers");
  EXPECT_ERROR(RelatedRows::of_matrix(torch::eye(3).narrow(0, 0, 2)), "must be square, got shape [2, 3]");
  auto skew = torch::eye(3);
  skew[0][1] = 0.5;
  EXPECT_ERROR(RelatedRows::of_matrix(skew), "must be symmetric, but entry (");
  EXPECT_ERROR(RelatedRows::of_matrix(torch::tensor({{1.0, 2.0}, {2.0, 1.0}})), "it is no covariance");
  EXPECT_ERROR(RelatedRows::of_matrix(torch::zeros({2, 2})), "diagonal entry that is not positive");
  EXPECT_ERROR(RelatedRows::of_factor(torch::zeros({3, 1})), "row of zeros");
}

}  // namespace
}  // namespace diffeo::testing
