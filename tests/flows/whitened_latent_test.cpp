// A flow whose last matrix is set by the data's covariance.
#include "diffeo/flows/whitened_latent.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "diffeo/flows/recipes.h"

namespace diffeo::testing {
namespace {

constexpr int64_t features = 3;

Tensor mixed_rows(int64_t rows) {
  torch::manual_seed(21);
  return 100 +
         torch::randn({rows, features}).mm(torch::tensor({{3.0f, 1.0f, 0.0f}, {0.0f, 0.2f, 5.0f}, {1.0f, 1.0f, 1.0f}}));
}

/// How far weighted latent rows are from mean 0 and covariance 1.
double distance(Flow& flow, const Tensor& x, const Tensor& weight) {
  torch::NoGradGuard no_grad;
  const auto z = flow.to_latent(x).value.to(torch::kFloat64);
  const auto w = (weight / weight.sum()).to(torch::kFloat64).unsqueeze(1);
  const auto mean = (w * z).sum(0);
  const auto covariance = (w * z).t().mm(z) - mean.outer(mean);
  return std::max(mean.abs().max().item<double>(),
                  (covariance - torch::eye(features, torch::kFloat64)).abs().max().item<double>());
}

TEST(WhitenedLatent, HasMeanZeroAndCovarianceOne) {
  for (const bool weighted : {false, true}) {
    const auto flow = build_flow(recipe("ebflow", {.features = features}));
    const auto x = mixed_rows(500);
    const auto weight = weighted ? torch::rand({500}) : torch::ones({500});
    Batch rows{.x = x};
    if (weighted) rows.weight = weight;
    ASSERT_GT(distance(*flow, x, weight), 1);
    whiten_latent(*flow, *in_memory(rows)->in_order(64));
    EXPECT_LT(distance(*flow, x, weight), 1e-3) << "weighted " << weighted << " seed 21";
  }
}

TEST(WhitenedLatent, IsTheMaximumOfTheLikelihoodOverTheLastLayer) {
  torch::manual_seed(22);
  const auto flow = build_flow(recipe("ebflow", {.features = features}));
  flow->to(torch::kFloat64);
  {
    torch::NoGradGuard no_grad;
    for (auto& parameter : flow->parameters()) parameter.add_(torch::randn_like(parameter), 0.3);
  }
  const auto x = mixed_rows(500).to(torch::kFloat64);
  const auto mean = [&] { return flow->log_prob(x).mean(); };
  const auto before = mean().item<double>();
  whiten_latent(*flow, *in_memory({.x = x})->in_order(64));
  const auto after = mean();
  EXPECT_GT(after.item<double>(), before) << "seed 22";
  auto last = flow->parameters();
  last.erase(last.begin(), last.end() - 2);
  ASSERT_EQ(last[0].sizes(), (std::vector<int64_t>{features, features}));
  // The slope by W is of the size of W^-T, of which the data's share must be the negative.
  for (const auto& slope : torch::autograd::grad({after}, last)) EXPECT_LT(slope.abs().max().item<double>(), 1e-9);
}

TEST(WhitenedLatent, DirectionsWithoutVarianceStayFinite) {
  const auto flow = build_flow(recipe("ebflow", {.features = features, .layers = 1}));
  auto x = mixed_rows(200);
  x.select(1, 2).fill_(4);
  whiten_latent(*flow, *in_memory({.x = x})->in_order(50));
  torch::NoGradGuard no_grad;
  EXPECT_TRUE(flow->log_prob(x).isfinite().all().item<bool>());
}

TEST(WhitenedLatent, RefusesWhatItCannotDo) {
  const auto coupling = build_flow(recipe("realnvp", {.features = features}));
  const auto flow = build_flow(recipe("ebflow", {.features = features}));
  const auto rows = [](const Tensor& x) { return in_memory({.x = x})->in_order(10); };
  EXPECT_THROW(whiten_latent(*coupling, *rows(mixed_rows(20))), Error);
  EXPECT_THROW(check_can_whiten(*coupling), Error);
  EXPECT_NO_THROW(check_can_whiten(*flow));
  EXPECT_THROW(whiten_latent(*flow, *rows(mixed_rows(1))), Error);
  EXPECT_THROW(whiten_latent(*flow, *rows(torch::ones({9, features}))), Error);
  EXPECT_THROW(whiten_latent(*flow, *rows(torch::full({9, features}, NAN))), Error);
}

}  // namespace
}  // namespace diffeo::testing
