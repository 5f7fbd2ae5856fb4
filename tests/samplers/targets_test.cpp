// Every example of every registered target: gradients agree with differences and with autograd, constants with
// quadrature or draws, and wrong options are refused by name.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <cmath>
#include <numbers>

#include "diffeo/layers/base/random.h"
#include "diffeo/samplers/targets/double_well.h"
#include "diffeo/samplers/targets/gaussian_mixture.h"
#include "diffeo/samplers/targets/shapes.h"

namespace diffeo::testing {
namespace {

struct TargetCase {
  std::string name;
  Json spec;
};
void PrintTo(const TargetCase& c, std::ostream* out) { *out << c.name << " " << c.spec.dump(); }

std::vector<TargetCase> every_target() {
  std::vector<TargetCase> cases;
  for (const auto* entry : all_targets())
    for (const auto& example : entry->examples) {
      Json spec = {{"type", entry->name}};
      spec.update(example.spec);
      cases.push_back({entry->name + "_" + example.name, spec});
    }
  return cases;
}

class Targets : public ::testing::TestWithParam<TargetCase> {
 protected:
  Targets() : target(build_target(GetParam().spec)) { torch::manual_seed(11); }
  Tensor points(int64_t rows) const { return torch::randn({rows, target->space().size()}, torch::kFloat64); }
  TargetPtr target;
};

TEST_P(Targets, GradientAgreesWithDifferencesAndWithAutograd) {
  const auto x = points(40);
  const auto [log_prob, gradient] = target->log_prob_and_gradient(x);
  EXPECT_FALSE(log_prob.requires_grad() || gradient.requires_grad());
  EXPECT_TRUE(torch::equal(log_prob, target->log_prob(x)));
  const auto scale = gradient.abs().max().item<double>();
  const auto leaf = x.clone().requires_grad_();
  const auto automatic = torch::autograd::grad({target->log_prob(leaf).sum()}, {leaf})[0];
  EXPECT_LT((automatic - gradient).abs().max().item<double>(), 1e-11 * (1 + scale));
  const double step = 1e-5;
  for (int64_t i = 0; i < x.size(1); ++i) {
    auto up = x.clone(), down = x.clone();
    up.select(1, i).add_(step);
    down.select(1, i).sub_(step);
    const auto slope = (target->log_prob(up) - target->log_prob(down)) / (2 * step);
    EXPECT_LT((slope - gradient.select(1, i)).abs().max().item<double>(), 1e-6 * (1 + scale)) << "feature " << i;
  }
}

TEST_P(Targets, AnyBatchAndBothPrecisions) {
  const auto x = points(12);
  const auto want = target->log_prob(x);
  EXPECT_EQ(target->log_prob(x[0]).sizes(), at::IntArrayRef({}));
  EXPECT_TRUE(torch::allclose(target->log_prob(x.view({3, 4, -1})).flatten(), want, 1e-12, 1e-12));
  EXPECT_EQ(target->log_prob(x.slice(0, 0, 0)).sizes(), at::IntArrayRef({0}));
  const auto single = target->log_prob_and_gradient(x.to(torch::kFloat32));
  EXPECT_EQ(single.log_prob.scalar_type(), torch::kFloat32);
  EXPECT_EQ(single.gradient.scalar_type(), torch::kFloat32);
  EXPECT_TRUE(torch::allclose(single.log_prob.to(torch::kFloat64), want, 1e-4, 1e-3));
  EXPECT_THROW(target->log_prob(torch::zeros({2, 99}, torch::kFloat64)), Error);
}

TEST_P(Targets, FarAwayNothingIsNaN) {
  for (double scale : {1e2, 1e4}) {
    const auto [log_prob, gradient] = target->log_prob_and_gradient(points(64) * scale);
    EXPECT_FALSE(log_prob.isnan().any().item<bool>());
    EXPECT_FALSE(gradient.isnan().any().item<bool>());
  }
}

TEST_P(Targets, SpecRebuildsTheTarget) {
  const auto again = build_target(target->spec());
  EXPECT_EQ(again->spec(), target->spec());
  EXPECT_EQ(target->spec()["type"], GetParam().spec["type"]);
  const auto x = points(5);
  EXPECT_TRUE(torch::equal(again->log_prob(x), target->log_prob(x)));
}

TEST_P(Targets, KnownConstantIsTheIntegralOverThePlane) {
  const auto known = target->log_normalizer();
  if (!known || target->space().size() > 2) return;
  const int64_t size = target->space().size(), n = size == 1 ? 20001 : 1601;
  const double half = 12;
  const auto line = torch::linspace(-half, half, n, torch::kFloat64);
  const auto grid = size == 1 ? line.unsqueeze(-1) : torch::stack(torch::meshgrid({line, line}, "ij"), -1);
  const double cell = static_cast<double>(size) * std::log(2 * half / static_cast<double>(n - 1));
  EXPECT_NEAR(target->log_prob(grid).flatten().logsumexp(0).item<double>() + cell, *known, 2e-4);
}

INSTANTIATE_TEST_SUITE_P(Every, Targets, ::testing::ValuesIn(every_target()),
                         [](const auto& info) { return info.param.name; });

TEST(Target, DoubleWellHasTheConstantOfTheNotes) {
  const DoubleWell target({});
  EXPECT_NEAR(Well{}.log_integral(), 9.37454117, 1e-8);
  EXPECT_NEAR(*target.log_normalizer() - std::log(2 * std::numbers::pi), 8.45560264, 1e-8);
  EXPECT_NEAR(*ManyDoubleWells({.wells = 3}).log_normalizer(), 3 * *target.log_normalizer(), 1e-9);
}

TEST(Target, MinimaOfMullerBrownAreWhereTheyAreSaidToBe) {
  MullerBrown target({.temperature = 1});
  const auto minima =
      torch::tensor({{-0.558223, 1.441726}, {0.623499, 0.028038}, {-0.050011, 0.466694}}, torch::kFloat64);
  const auto [log_prob, gradient] = target.log_prob_and_gradient(minima);
  EXPECT_LT((log_prob - torch::tensor({146.6995, 108.1667, 80.7678}, torch::kFloat64)).abs().max().item<double>(),
            1e-3);
  EXPECT_LT(gradient.abs().max().item<double>(), 0.05);
}

TEST(Target, FreeFieldHasTheConstantOfItsPrecisionMatrix) {
  // log p = -x^T A x, so log Z = D/2 log pi - 1/2 log det A, with A found from values at unit vectors and their sums.
  Phi4 target({.side = 3, .kappa = 0.2, .lambda = 0});
  const auto unit = torch::eye(9, torch::kFloat64);
  const auto alone = -target.log_prob(unit);
  const auto both = -target.log_prob(unit.unsqueeze(0) + unit.unsqueeze(1));
  const auto matrix = (both - alone.unsqueeze(0) - alone.unsqueeze(1)) / 2;
  const auto log_det = std::get<1>(torch::linalg_slogdet(matrix)).item<double>();
  EXPECT_NEAR(*target.log_normalizer(), 4.5 * std::log(std::numbers::pi) - 0.5 * log_det, 1e-10);
  EXPECT_FALSE(Phi4({}).log_normalizer().has_value());
}

TEST(Target, ParticlesMayBeNumberedMovedTogetherAndTurned) {
  ParticleDoubleWell target({});
  torch::manual_seed(3);
  const auto x = 2 * torch::randn({10, 4, 2}, torch::kFloat64);
  const auto centred = x - x.mean(1, true);
  const auto value = [&](const Tensor& points) { return target.log_prob(points.flatten(1)); };
  const double angle = 0.7;
  const auto turn =
      torch::tensor({{std::cos(angle), -std::sin(angle)}, {std::sin(angle), std::cos(angle)}}, torch::kFloat64);
  EXPECT_TRUE(torch::allclose(value(torch::matmul(x, turn)), value(x), 1e-11, 1e-11));
  EXPECT_TRUE(torch::allclose(value(x.flip(1)), value(x), 1e-11, 1e-11));
  // The centre is an independent normal of variance 1/n.
  EXPECT_TRUE(torch::allclose(value(centred) - 2 * x.mean(1).square().sum(-1), value(x), 1e-11, 1e-11));
}

TEST(Target, SpecsWithMistakesAreRefusedByName) {
  const auto refused = [](const char* text, const char* words) {
    try {
      build_target(Json::parse(text));
      FAIL() << text << " is taken";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  refused(R"({"type": "double_wall"})", "did you mean 'double_well'?");
  refused(R"({"type": "double_well", "features": 0})", "features: must be at least 1");
  refused(R"({"type": "double_well", "c": -1})", "c: must be above 0");
  refused(R"({"type": "many_double_wells", "wells": 0})", "wells");
  refused(R"({"type": "particle_double_well", "particles": 1})", "particles");
  refused(R"({"type": "gaussian_mixture", "means": [[1, 2], [1]]})", "means/1: expected 2 numbers, got 1");
  refused(R"({"type": "gaussian_mixture", "weights": [1, 2]})", "expected one for each of 8 components, got 2");
  refused(R"({"type": "gaussian_mixture", "features": 40, "arrangement": "corners"})", "at most 12");
  refused(R"({"type": "gaussian_mixture", "features": 1})", "a ring needs at least 2");
  refused(R"({"type": "funnel", "features": 1})", "features: must be at least 2");
  refused(R"({"type": "banana", "scale": 0})", "scale: must be above 0");
  refused(R"({"type": "muller_brown", "temperature": -1})", "temperature");
  refused(R"({"type": "phi4", "lambda": 0})", "a free field");
  refused(R"({"type": "phi4", "side": 1})", "side");
}

}  // namespace
}  // namespace diffeo::testing
