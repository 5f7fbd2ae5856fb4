// Estimates from importance weights against sums by hand and known distributions.
#include "diffeo/samplers/importance.h"

#include <gtest/gtest.h>

#include <cmath>

#include "diffeo/layers/base/error.h"

namespace diffeo::testing {
namespace {

Tensor numbers(std::vector<double> values) { return torch::tensor(values, torch::kFloat64); }

TEST(Importance, EffectiveSampleSizeIsThatOfTheFormula) {
  EXPECT_NEAR(effective_sample_size(torch::zeros({7})), 1, 1e-15);
  // Weights 1, 2, 3: 36 / (3 * 14).
  EXPECT_NEAR(effective_sample_size(numbers({1, 2, 3}).log()), 36.0 / 42, 1e-12);
  EXPECT_NEAR(effective_sample_size(numbers({0, 0, 3}).log()), 1.0 / 3, 1e-12);
}

TEST(Importance, AShiftOfAllWeightsShiftsOnlyTheConstant) {
  const auto log_weights = numbers({0.5, -1, 2, 0.1});
  const auto shifted = log_weights + 2000;
  EXPECT_NEAR(log_mean_weight(shifted).value, log_mean_weight(log_weights).value + 2000, 1e-9);
  EXPECT_NEAR(log_mean_weight(shifted).error, log_mean_weight(log_weights).error, 1e-9);
  EXPECT_NEAR(effective_sample_size(shifted), effective_sample_size(log_weights), 1e-9);
}

TEST(Importance, ConstantAndItsErrorAreThoseOfTheMean) {
  const auto weights = numbers({1, 2, 3, 6});
  const auto estimate = log_mean_weight(weights.log());
  EXPECT_NEAR(estimate.value, std::log(3.0), 1e-12);
  EXPECT_NEAR(estimate.error, std::sqrt(14.0 / 3 / 4) / 3, 1e-12);
}

TEST(Importance, AveragesAndFreeEnergiesAreWeighted) {
  const auto log_weights = numbers({1, 2, 3, 4}).log();
  EXPECT_NEAR(weighted_average(log_weights, numbers({10, 20, 30, 40})).value, 30, 1e-12);
  const auto first = torch::tensor({1, 1, 0, 0}).to(torch::kBool);
  EXPECT_NEAR(free_energy_difference(log_weights, first, first.logical_not()).value, -std::log(3.0 / 7), 1e-12);
  // Samples without weight may be anything.
  EXPECT_NEAR(weighted_average(numbers({1, 0}).log(), numbers({5, NAN})).value, 5, 1e-12);
}

TEST(Importance, ErrorsAgreeWithTheBootstrap) {
  torch::manual_seed(1);
  const auto log_weights = torch::randn({4000}, torch::kFloat64) * 0.7;
  const auto values = torch::randn({4000}, torch::kFloat64) + log_weights;
  const auto right = values > 0;
  const auto compare = [&](const Estimate& delta, const std::function<double(const Tensor&)>& statistic) {
    const auto resampled = bootstrap(4000, 400, statistic);
    EXPECT_NEAR(resampled.value, delta.value, 1e-12);
    EXPECT_NEAR(resampled.error / delta.error, 1, 0.15) << "seed 1";
  };
  compare(log_mean_weight(log_weights),
          [&](const Tensor& rows) { return log_mean_weight(log_weights.index_select(0, rows)).value; });
  compare(weighted_average(log_weights, values), [&](const Tensor& rows) {
    return weighted_average(log_weights.index_select(0, rows), values.index_select(0, rows)).value;
  });
  compare(free_energy_difference(log_weights, right, right.logical_not()), [&](const Tensor& rows) {
    const auto there = right.index_select(0, rows);
    return free_energy_difference(log_weights.index_select(0, rows), there, there.logical_not()).value;
  });
}

TEST(Importance, WeightsThatSayNothingAreRefused) {
  const auto refused = [](const Tensor& log_weights, const char* words) {
    try {
      log_mean_weight(log_weights);
      FAIL() << words;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  refused(torch::zeros({0}), "N at least 1");
  refused(torch::zeros({2, 2}), "N at least 1");
  refused(numbers({0, NAN, NAN}), "2 of 3 are not numbers");
  refused(numbers({0, INFINITY}), "infinite");
  refused(numbers({-INFINITY, -INFINITY}), "all of them are 0");
  EXPECT_THROW(weighted_average(numbers({0, 0}), numbers({1})), Error);
  const auto none = torch::zeros({2}, torch::kBool);
  EXPECT_THROW(free_energy_difference(numbers({0, 0}), none, none.logical_not()), Error);
  EXPECT_THROW(bootstrap(0, 10, [](const Tensor&) { return 0.0; }), Error);
}

}  // namespace
}  // namespace diffeo::testing
