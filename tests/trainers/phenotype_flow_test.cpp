#include "diffeo/trainers/phenotype_flow.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "data/scratch.h"
#include "diffeo/layers/base/random.h"

namespace diffeo::testing {
namespace {

constexpr uint64_t seed = 51;
const auto f64 = torch::TensorOptions(torch::kFloat64);

double correlation(const Tensor& a, const Tensor& b) {
  const auto standard = [](const Tensor& values) { return (values - values.mean()) / values.std(false); };
  return (standard(a) * standard(b)).mean().item<double>();
}

TEST(PhenotypeFlow, UndoesWhatBentAPhenotypeOfRelatives) {
  const SeedGuard guard(seed);
  const int64_t families = 150, members = 4;
  const auto family = torch::arange(families).repeat_interleave(members);
  const auto hidden = std::sqrt(0.5) * torch::randn({families}, f64).index_select(0, family) +
                      std::sqrt(0.5) * torch::randn({families * members}, f64);
  const auto dependence = std::make_shared<GroupedRows>(family);
  for (const auto& y : {hidden.exp(), torch::log1p((3 * hidden).exp()).square(), 5 - 2 * hidden}) {
    const auto made = fit_phenotype_flow(y, dependence, {.steps = 150, .seed = seed});
    const auto z = transformed(*made.flow, y);
    EXPECT_GT(std::abs(correlation(z, hidden)), 0.99);
    EXPECT_NEAR(z.std(false).item<double>(), 1, 0.15);
    EXPECT_NEAR(made.strength, 0.5, 0.12);
    // Increasing: the order of the individuals stays.
    EXPECT_TRUE(z.argsort().equal(y.argsort()));
  }
}

TEST(PhenotypeFlow, KnowsTiesAndFewIndividuals) {
  const SeedGuard guard(seed);
  const auto y = torch::randint(4, {60}, f64);
  const auto dependence = std::make_shared<GroupedRows>(torch::arange(30).repeat_interleave(2));
  const auto made = fit_phenotype_flow(y, dependence, {.steps = 50, .dependence = 0.3});
  EXPECT_NEAR(made.strength, 0.3, 1e-12);
  const auto z = transformed(*made.flow, y);
  EXPECT_TRUE(torch::isfinite(z).all().item<bool>());
  for (int64_t i = 0; i < 60; ++i)
    for (int64_t j = 0; j < 60; ++j)
      if (y[i].item<double>() < y[j].item<double>()) EXPECT_LT(z[i].item<double>(), z[j].item<double>());
}

TEST(PhenotypeFlow, SaysWhatIsWrong) {
  const auto dependence = std::make_shared<GroupedRows>(torch::arange(5).repeat_interleave(2));
  EXPECT_ERROR(fit_phenotype_flow(torch::randn({9}), dependence), "expected a phenotype of shape (10)");
  EXPECT_ERROR(fit_phenotype_flow(torch::ones({10}), dependence), "is the same for all");
  EXPECT_ERROR(fit_phenotype_flow(torch::full({10}, std::nan("")), dependence), "not finite");
  const auto wide = build_flow(
      {{"layers", {{{"type", "actnorm"}, {"features", 2}}}}, {"base", {{"type", "normal"}, {"features", 2}}}});
  EXPECT_ERROR(transformed(*wide, torch::randn({3})), "needs a flow of one feature");
}

}  // namespace
}  // namespace diffeo::testing
