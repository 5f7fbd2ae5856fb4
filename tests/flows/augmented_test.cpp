// Flows with features of noise beside those of the data: bounds against the exact density of a Gaussian case, and what
// their recipe makes.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "data/scratch.h"
#include "diffeo/data/model_file.h"
#include "diffeo/flows/model.h"
#include "diffeo/flows/recipes.h"
#include "diffeo/layers/sequential/sequential.h"
#include "diffeo/trainers/fit.h"
#include "diffeo/trainers/objective.h"

namespace diffeo::testing {
namespace {

constexpr uint64_t seed = 23;
constexpr int64_t features = 2;

/// A flow of two features and one of noise with a linear map behind them, whose density is normal.
struct GaussianCase {
  explicit GaussianCase(const Json& net = nullptr, double coupled = 1) {
    torch::manual_seed(seed);
    flow = build_flow({{"type", "flow"},
                       {"layers",
                        {{{"type", "augment"}, {"features", features}, {"noise", 1}, {"scale", 0.8}, {"net", net}},
                         {{"type", "dense_linear"}, {"features", 3}}}},
                       {"base", {{"type", "normal"}, {"features", 3}}}});
    flow->to(torch::kFloat64);
    linear = static_cast<const Sequential&>(*flow->layers()).layers()[1];
    torch::NoGradGuard no_grad;
    for (auto& parameter : linear->parameters())
      if (parameter.dim() == 2)
        parameter.copy_(torch::tensor({{1.2, -0.3, 0.7 * coupled}, {0.4, 0.9, -0.5 * coupled}, {0.0, 0.0, 1.25}}));
      else
        parameter.copy_(torch::tensor({0.5, -0.2, 0.0}));
    const auto from = torch::zeros({1, 3}, torch::kFloat64), axes = torch::eye(3, torch::kFloat64);
    const auto offset = linear->forward(from).value;
    const auto a = (linear->forward(axes).value - offset).t();  // z = a y + offset
    precision = a.t().matmul(a);
    mean = -torch::linalg_solve(a, offset.squeeze(0));
  }

  /// log p(x), (N), of x (N, 2).
  Tensor exact(const Tensor& x) const {
    const auto covariance = precision.inverse().narrow(0, 0, features).narrow(1, 0, features);
    const auto d = x - mean.narrow(0, 0, features);
    return -0.5 * (d.matmul(covariance.inverse()) * d).sum(-1) - 0.5 * covariance.logdet() -
           std::log(2 * 3.14159265358979323846);
  }
  /// KL(q(e) || p(e | x)), (N), for noise of mean 0 and standard deviation `scale`.
  Tensor gap(const Tensor& x, double scale) const {
    const auto own = precision[2][2];
    const auto conditional =
        mean[2] - (x - mean.narrow(0, 0, features)).matmul(precision[2].narrow(0, 0, features)) / own;
    return 0.5 * (scale * scale * own + conditional.square() * own - 1 - (scale * scale * own).log());
  }

  FlowPtr flow;
  LayerPtr linear;
  Tensor precision, mean;  ///< of the joint density of data and noise, (3, 3) and (3)
};

TEST(AugmentedFlow, TheBoundOfOnePathIsBelowByTheDivergenceOfTheNoise) {
  torch::NoGradGuard no_grad;
  const GaussianCase one;
  torch::manual_seed(seed);
  for (const auto& x : torch::randn({3, features}, torch::kFloat64).unbind()) {
    const auto many = x.expand({40000, features});
    const auto bound = one.flow->log_prob_bound(many);
    const double error = bound.std().item<double>() / 200;
    const auto want = one.exact(x.unsqueeze(0)) - one.gap(x.unsqueeze(0), 0.8);
    EXPECT_NEAR(bound.mean().item<double>(), want.item<double>(), 4 * error) << "seed " << seed;
    EXPECT_GT(one.gap(x.unsqueeze(0), 0.8).item<double>(), 10 * error) << "nothing to see";
  }
}

TEST(AugmentedFlow, TheBoundRisesToTheExactDensityWithMorePaths) {
  torch::NoGradGuard no_grad;
  const GaussianCase one;
  torch::manual_seed(seed);
  const auto x = one.flow->sample({2000});
  const auto exact = one.exact(x);
  double before = -INFINITY;
  for (const int64_t paths : {1, 4, 16, 64, 256}) {
    const auto short_of = (exact - one.flow->log_prob_bound(x, {}, paths)).mean().item<double>();
    EXPECT_GT(-short_of, before) << paths << " paths, seed " << seed;
    before = -short_of;
  }
  EXPECT_NEAR(before, 0, 0.02) << "seed " << seed;
  EXPECT_NEAR((exact - one.flow->log_prob_bound(x, {}, 4096)).mean().item<double>(), 0, 0.002) << "seed " << seed;
}

TEST(AugmentedFlow, NoiseOfTheFlowsOwnDensityMakesOnePathExact) {
  torch::NoGradGuard no_grad;
  const GaussianCase one(nullptr, 0);  // e is normal with deviation 0.8, whatever x is
  torch::manual_seed(seed);
  const auto x = torch::randn({50, features}, torch::kFloat64);
  EXPECT_TRUE(torch::allclose(one.flow->log_prob_bound(x), one.exact(x), 1e-10, 1e-10));
}

TEST(AugmentedFlow, TheNoiseLearnsItsDensityInTheFlow) {
  GaussianCase one({{"width", 16}, {"depth", 1}, {"activation", "tanh"}});
  for (auto& parameter : one.linear->parameters()) parameter.requires_grad_(false);
  torch::manual_seed(seed);
  const auto x = one.flow->sample({4000}).detach();
  const auto exact = one.exact(x);
  const auto short_of = [&] {
    torch::NoGradGuard no_grad;
    return (exact - one.flow->log_prob_bound(x)).mean().item<double>();
  };
  const double before = short_of();
  MaximumLikelihood objective(one.flow);
  fit(objective, *in_memory({.x = x}), nullptr,
      {.batch_size = 500, .steps = 600, .learning_rate = 0.01, .checkpoint_seconds = 0, .seed = seed});
  EXPECT_GT(before, 0.2);
  EXPECT_LT(short_of(), 0.02) << "seed " << seed;
}

TEST(AugmentedFlow, DrawnPointsCarryTheWeightsOfTheirPaths) {
  torch::NoGradGuard no_grad;
  const GaussianCase one;
  torch::manual_seed(seed);
  const auto [x, log_prob] = one.flow->draw({20000});
  const auto weight = (one.exact(x) - log_prob).exp();  // of a normalised density: mean 1
  EXPECT_NEAR(weight.mean().item<double>(), 1, 4 * weight.std().item<double>() / std::sqrt(20000.0)) << "seed " << seed;
}

TEST(AugmentedFlow, TheRecipeTrainsSavesAndLoadsWithAndWithoutAContext) {
  const Scratch scratch;
  for (const int64_t context : {0, 1})
    for (const int64_t size : {1, 2}) {
      SCOPED_TRACE(c10::str(size, " features, context ", context));
      torch::manual_seed(seed);
      const auto c = torch::randn({800, 1});
      auto x = torch::randn({800, size}).sign() * 2 + 0.3 * torch::randn({800, size});
      if (context > 0) x = x + c;
      Batch rows{.x = x};
      if (context > 0) rows.context = c;
      const auto flow = build_flow(
          recipe("augmented", {.features = size, .context = context, .augment = 2, .layers = 3, .width = 16}));
      EXPECT_EQ(flow->base()->space().size(), size + 2);
      EXPECT_EQ(build_flow(flow->spec())->spec(), flow->spec());
      const auto bound = [&](Flow& one) {
        torch::NoGradGuard no_grad;
        torch::manual_seed(seed);
        return one.log_prob_bound(rows.x, rows.context, 10).mean().item<double>();
      };
      const double before = bound(*flow);
      MaximumLikelihood objective(flow);
      fit(objective, *in_memory(rows), nullptr,
          {.batch_size = 200, .steps = 60, .learning_rate = 5e-3, .checkpoint_seconds = 0, .seed = seed});
      EXPECT_GT(bound(*flow), before + 0.2);
      EXPECT_EQ(flow->sample({7}, context > 0 ? c.slice(0, 0, 1) : Tensor()).numel(), 7 * size);
      save(*flow, scratch / "flow.h5");
      EXPECT_EQ(bound(*load_flow(scratch / "flow.h5")), bound(*flow));
    }
}

TEST(AugmentedFlow, MistakesAreNamed) {
  const auto message = [](const Json& options) -> std::string {
    Json spec = {{"type", "augment"}, {"features", 2}, {"noise", 1}};
    spec.update(options);
    try {
      build_layer(spec);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(message({{"noise", 0}}).find("noise: must be at least 1, got 0"), std::string::npos);
  EXPECT_NE(message({{"scale", 0}}).find("scale: must be above 0, got 0"), std::string::npos);
  EXPECT_NE(message({{"context", 1}}).find("context: is for the network that makes the noise"), std::string::npos);
  EXPECT_NE(message({{"net", {{"width", 0}}}}).find("net/width: must be at least 1"), std::string::npos);
  EXPECT_THROW(recipe("augmented", {.features = 2, .augment = -1}), SpecError);
  EXPECT_THROW(recipe("nsf", {.features = 2, .augment = 1}), SpecError);
}

}  // namespace
}  // namespace diffeo::testing
