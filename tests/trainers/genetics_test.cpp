#include "diffeo/trainers/genetics.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "data/scratch.h"
#include "diffeo/layers/base/random.h"
#include "diffeo/trainers/tail_probability.h"

namespace diffeo::testing {
namespace {

const double nan = std::nan("");
const auto f64 = torch::TensorOptions(torch::kFloat64);

TEST(TailProbability, OfFAgreesWithClosedForms) {
  // With 1 and 1 degrees of freedom the tail is 1 - 2 atan(sqrt f) / pi; with 1 and 2 it is 1 - sqrt(f / (f + 2)); with
  // 2 and m it is (1 + 2 f / m)^(-m / 2).
  for (double f : {1e-6, 0.1, 1.0, 3.7, 50.0, 1e4}) {
    EXPECT_NEAR(f_tail(f, 1, 1), 1 - 2 * std::atan(std::sqrt(f)) / M_PI, 1e-13);
    EXPECT_NEAR(f_tail(f, 1, 2), 1 - std::sqrt(f / (f + 2)), 1e-13);
    for (double m : {3.0, 10.0, 1400.0}) {
      const double want = std::pow(1 + 2 * f / m, -m / 2);
      if (want > 1e-300) EXPECT_NEAR(f_tail(f, 2, m) / want, 1, 1e-10) << f << ' ' << m;
    }
  }
  // The limit of many degrees of freedom.
  EXPECT_NEAR(f_tail(30, 1, 1e9) / chi_squared_tail(30), 1, 1e-5);
}

TEST(TailProbability, KnowsItsEnds) {
  EXPECT_EQ(f_tail(0, 1, 10), 1);
  EXPECT_EQ(f_tail(INFINITY, 1, 10), 0);
  EXPECT_TRUE(std::isnan(f_tail(nan, 1, 10)));
  EXPECT_GT(f_tail(1e4, 1, 300), 0);  // 1e-230 or so
  EXPECT_NEAR(chi_squared_tail(3.841458820694124), 0.05, 1e-12);
  EXPECT_EQ(chi_squared_tail(0), 1);
  EXPECT_ERROR(f_tail(1, 0, 3), "degrees of freedom must be positive");
}

TEST(Markers, AreSummarisedWithoutTheirMissingCalls) {
  const auto dosages = torch::tensor({{0.0, 2.0, 1.0, nan}, {1.0, 2.0, nan, nan}, {2.0, 2.0, 0.0, 1.0}}, f64);
  const auto summary = summary_of_markers(dosages, {.least_frequency = 0.2, .most_missing = 0.5});
  EXPECT_TRUE(torch::allclose(summary.frequency, torch::tensor({0.5, 1.0, 0.25, 0.5}, f64)));
  EXPECT_TRUE(torch::allclose(summary.missing, torch::tensor({0.0, 0.0, 1.0 / 3, 2.0 / 3}, f64)));
  EXPECT_TRUE(summary.used.equal(torch::tensor({true, false, true, false})));
  EXPECT_TRUE(torch::allclose(without_missing(dosages).select(1, 2), torch::tensor({1.0, 0.5, 0.0}, f64)));
}

TEST(Markers, RelatednessIsTheMeanOfCentredProducts) {
  const SeedGuard guard(3);
  const auto dosages = torch::randint(3, {9, 700}, torch::kFloat32);  // more than are taken at once
  const auto centred = (dosages - dosages.mean(0, true)).to(torch::kFloat64);
  EXPECT_TRUE(torch::allclose(centred_relatedness(dosages), centred.matmul(centred.t()) / 700, 1e-5, 1e-6));
  EXPECT_ERROR(centred_relatedness(torch::full({2, 2}, nan)), "dosages are missing");
}

TEST(RankNormal, GivesQuantilesAndSharesThemAmongTies) {
  const auto z = rank_normal(torch::tensor({3.0, nan, -7.0, 3.0, 100.0}, f64));
  const auto quantile = [](double share) { return torch::special_ndtri(torch::tensor(share, f64)).item<double>(); };
  EXPECT_NEAR(z[2].item<double>(), quantile((1 - 0.375) / 4.25), 1e-12);
  EXPECT_NEAR(z[0].item<double>(), quantile((2.5 - 0.375) / 4.25), 1e-12);
  EXPECT_EQ(z[0].item<double>(), z[3].item<double>());
  EXPECT_NEAR(z[4].item<double>(), quantile((4 - 0.375) / 4.25), 1e-12);
  EXPECT_TRUE(std::isnan(z[1].item<double>()));
}

TEST(FalseDiscoveries, AreBoundedByTheStepUpRule) {
  // Sorted p-values against 0.05 i / 5: the third is the last that is below.
  const auto p = torch::tensor({0.5, 0.001, 0.03, 0.025, 0.9}, f64);
  EXPECT_EQ(false_discovery_threshold(p, 0.05), 0.03);
  EXPECT_EQ(false_discovery_threshold(torch::tensor({0.5, 0.9}, f64), 0.05), 0);
  EXPECT_ERROR(false_discovery_threshold(p, 0), "must be between 0 and 1");
}

TEST(Inflation, IsOneForUniformValues) {
  const auto p = (torch::arange(1, 1000, f64)) / 1000;
  EXPECT_NEAR(inflation(p), 1, 1e-9);
  const auto chi = torch::special_ndtri(p / 2).square() * 1.3;
  EXPECT_NEAR(inflation(torch::erfc((chi / 2).sqrt())), 1.3, 1e-6);
}

}  // namespace
}  // namespace diffeo::testing
