// Every registered univariate map, beyond what the schemes' property tests see: extreme parameters, ends of the domain,
// its image, and the broadcasting of parameters.
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <cmath>
#include <numbers>

#include "diffeo/layers/base/registry.h"
#include "properties/cases.h"

namespace diffeo::testing {
namespace {

constexpr int64_t seed = 5;

struct Named {
  std::string name;
  UnivariatePtr map;
};

void PrintTo(const Named& named, std::ostream* out) { *out << named.name; }

std::vector<Named> every_map() {
  std::vector<Named> maps;
  for (const auto* entry : all_univariates()) {
    for (const auto& example : entry->examples) {
      Json spec = {{"type", entry->name}};
      spec.update(example.spec);
      maps.push_back({entry->name + "_" + example.name, build_univariate(spec)});
    }
  }
  return maps;
}

UnivariatePtr map_of(const Json& spec) { return build_univariate(spec); }

/// The message of the Error that `body` throws; empty if it throws none.
template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class EveryMap : public ::testing::TestWithParam<Named> {
 protected:
  EveryMap() { torch::manual_seed(seed); }
  const Univariate& map() const { return *GetParam().map; }
  /// Parameters (*batch, D, P) around the identity.
  Tensor parameters(std::vector<int64_t> shape, double spread) const {
    shape.push_back(map().parameters());
    if (map().parameters() == 0) return torch::zeros(shape, torch::kDouble);
    return torch::tensor(map().identity(), torch::kDouble) + spread * torch::randn(shape, torch::kDouble);
  }
  Tensor points(std::vector<int64_t> batch, int64_t features) const {
    return points_in(Space::product(std::vector<Axis>(features, map().domain())), std::move(batch), torch::kDouble);
  }
};

/// Values of an axis that reach almost everywhere (n, 1), for t evenly over a wide range, and dx/dt (n).
std::pair<Tensor, Tensor> substituted(const Axis& axis, const Tensor& t) {
  const bool low = std::isfinite(axis.lower), high = std::isfinite(axis.upper);
  if (low && high) {
    const double width = axis.upper - axis.lower;
    return {(axis.lower + width * t.sigmoid()).unsqueeze(-1), width * t.sigmoid() * (-t).sigmoid()};
  }
  if (low) return {(axis.lower + t.exp()).unsqueeze(-1), t.exp()};
  if (high) return {(axis.upper - (-t).exp()).unsqueeze(-1), (-t).exp()};
  return {t.sinh().unsqueeze(-1), t.cosh()};
}

/// Log of a density that covers an axis: normal, exponential or uniform. y (n, 1).
Tensor base_log_density(const Axis& axis, const Tensor& y) {
  const bool low = std::isfinite(axis.lower), high = std::isfinite(axis.upper);
  const auto point = y.squeeze(-1);
  if (low && high) return torch::full_like(point, -std::log(axis.upper - axis.lower));
  if (low) return axis.lower - point;
  if (high) return point - axis.upper;
  return -0.5 * (point.square() + std::log(2 * std::numbers::pi));
}

TEST_P(EveryMap, DensityIntegratesToOne) {
  const auto t = at::linspace(-32, 32, 64001, torch::kDouble);
  for (double spread : {0.0, 0.5, 1.5}) {
    const auto [x, slope] = substituted(map().domain(), t);
    const auto [y, log_det] = map().forward(x, parameters({1}, spread));
    const auto density = (base_log_density(map().codomain(), y) + log_det).exp();
    EXPECT_NEAR((density * slope).sum().item<double>() * 64 / 64000, 1, 1e-3) << "spread " << spread;
  }
}

TEST_P(EveryMap, ExtremeParametersKeepTheLogDetHonest) {
  const auto x = points({6}, 1);
  for (double extreme : {-100.0, -30.0, 30.0, 100.0}) {
    auto extremes = torch::full({1, map().parameters()}, extreme, torch::kDouble);
    for (bool alternating : {false, true}) {
      if (alternating && map().parameters() > 0) extremes.slice(-1, 0, map().parameters(), 2).neg_();
      const auto trace = c10::str("parameters ", extreme, alternating ? " and their negatives" : "", ", seed ", seed);
      auto p = extremes.clone().requires_grad_();
      auto from = x.clone().requires_grad_();
      const auto [y, log_det] = map().forward(from, p);
      const auto slope = torch::autograd::grad({y.sum()}, {from}, {}, true)[0].squeeze(-1).detach();
      // Where the slope is below what float64 can show, only finiteness is asked for.
      const auto seen = slope > 1e-200;
      EXPECT_TRUE(log_det.isfinite().all().item<bool>()) << trace;
      EXPECT_TRUE(torch::allclose(log_det.detach().masked_select(seen), slope.log().masked_select(seen), 1e-6, 1e-6))
          << trace << "\nlog_det " << log_det << "\nlog slope " << slope.log();
      const auto back = map().inverse(y.detach(), p);
      EXPECT_TRUE(back.log_det.isfinite().all().item<bool>()) << trace;
      if (map().parameters() == 0) continue;
      for (const auto& result : {Mapped{y, log_det}, back}) {
        const auto total = result.value.sum() + result.log_det.sum();
        if (!total.requires_grad()) continue;
        const auto grad = torch::autograd::grad({total}, {p}, {}, true, false, true)[0];
        EXPECT_FALSE(grad.isnan().any().item<bool>()) << trace;
      }
    }
  }
}

TEST_P(EveryMap, ParametersMeetTheirOwnPoints) {
  // B = D = 2 tells whether (*batch, D, P) and (D, P) are mixed up.
  const auto x = points({2}, 2), own = parameters({2, 2}, 0.7), shared = parameters({2}, 0.7);
  const auto both = map().forward(x, own), with_shared = map().forward(x, shared);
  for (int64_t row = 0; row < 2; ++row) {
    const auto alone = map().forward(x[row], own[row]), alone_shared = map().forward(x[row], shared);
    EXPECT_TRUE(torch::allclose(both.value[row], alone.value, 0, 1e-12)) << "seed " << seed;
    EXPECT_TRUE(torch::allclose(both.log_det[row], alone.log_det, 0, 1e-12)) << "seed " << seed;
    EXPECT_TRUE(torch::allclose(with_shared.value[row], alone_shared.value, 0, 1e-12)) << "seed " << seed;
    EXPECT_TRUE(torch::allclose(with_shared.log_det[row], alone_shared.log_det, 0, 1e-12)) << "seed " << seed;
  }
}

TEST_P(EveryMap, EndsOfABoundedAxisAreMappedAndPointsBeyondAreRefused) {
  for (auto dtype : {torch::kFloat32, torch::kFloat64}) {
    for (bool inverse : {false, true}) {
      const auto axis = inverse ? map().codomain() : map().domain();
      if (!axis.bounded() || axis.circular) continue;
      const auto apply = [&](const Tensor& point) {
        const auto p = parameters({2}, 0).to(dtype);
        return inverse ? map().inverse(point, p) : map().forward(point, p);
      };
      for (double end : {axis.lower, axis.upper}) {
        if (!std::isfinite(end)) continue;
        const double outwards = end == axis.lower ? -1 : 1;
        const auto inner = points_in(Space::product({axis, axis}), {3}, dtype);
        auto at_end = inner.clone();
        at_end[1][1] = end;
        const auto [value, log_det] = apply(at_end.requires_grad_());
        EXPECT_TRUE(value.isfinite().all().item<bool>()) << value;
        EXPECT_TRUE(log_det.isfinite().all().item<bool>()) << log_det;
        const auto grad = torch::autograd::grad({value.sum() + log_det.sum()}, {at_end})[0];
        EXPECT_FALSE(grad.isnan().any().item<bool>());
        auto beyond = inner.clone();
        beyond[1][1] = end + outwards * 0.01;
        const auto message = error_of([&] { apply(beyond); });
        EXPECT_NE(message.find("row 1, feature 1"), std::string::npos) << "got '" << message << "'";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, EveryMap, ::testing::ValuesIn(every_map()),
                         [](const auto& info) { return info.param.name; });

Tensor numbers(const std::vector<double>& values) { return torch::tensor(values, torch::kDouble); }

TEST(LeakyRelu, CountsNegativeFeaturesInBothDirections) {
  const auto map = map_of({{"type", "leaky_relu"}, {"slope", 0.25}});
  const auto [y, log_det] = map->forward(numbers({-2, 3, -0.5}), {});
  EXPECT_TRUE(torch::equal(y, numbers({-0.5, 3, -0.125})));
  EXPECT_DOUBLE_EQ(log_det.item<double>(), 2 * std::log(0.25));
  const auto back = map->inverse(y, {});
  EXPECT_TRUE(torch::equal(back.value, numbers({-2, 3, -0.5})));
  EXPECT_DOUBLE_EQ(back.log_det.item<double>(), -2 * std::log(0.25));
}

TEST(Sigmoid, LogDetIsExactWhereTheValueRounds) {
  const auto map = map_of({{"type", "sigmoid"}});
  for (float x : {-80.0F, 80.0F}) {
    const auto [y, log_det] = map->forward(torch::full({1}, x), {});
    EXPECT_FLOAT_EQ(log_det.item<float>(), -80);
    EXPECT_TRUE(map->inverse(y, {}).value.isfinite().item<bool>());
  }
}

TEST(Tanh, LogDetIsExactWhereTheValueRounds) {
  const auto log_det = map_of({{"type", "tanh"}})->forward(torch::full({1}, 40.0F), {}).log_det;
  EXPECT_FLOAT_EQ(log_det.item<float>(), std::log(4.0F) - 80);
}

TEST(Softplus, HasAllDigitsForLargeAndSmallPoints) {
  const auto map = map_of({{"type", "softplus"}});
  const auto y = map->forward(numbers({25, -30}), {}).value;
  EXPECT_NEAR(y[0].item<double>() - 25, std::log1p(std::exp(-25.0)), 4e-15);
  EXPECT_DOUBLE_EQ(y[1].item<double>(), std::log1p(std::exp(-30.0)));
  EXPECT_TRUE(torch::allclose(map->inverse(y, {}).value, numbers({25, -30}), 1e-13, 0));
}

TEST(CircularShift, StaysOnTheCircleAndComesBack) {
  constexpr double pi = std::numbers::pi;
  const auto map = map_of({{"type", "circular_shift"}});
  const auto x = numbers({-pi, -3, 0, 3, pi - 1e-9}), shift = torch::full({5, 1}, 2.5 * pi, torch::kDouble);
  const auto y = map->forward(x, shift).value;
  EXPECT_TRUE((y >= -pi).logical_and(y <= pi).all().item<bool>()) << y;
  EXPECT_TRUE(torch::allclose(y.cos(), -x.sin(), 0, 1e-12));
  const auto back = map->inverse(y, shift).value;
  EXPECT_TRUE(torch::allclose(back.cos(), x.cos(), 0, 1e-12) && torch::allclose(back.sin(), x.sin(), 0, 1e-12));
}

TEST(BoxCox, ImageIsWhatItSays) {
  const auto root = map_of({{"type", "box_cox"}, {"lambda", 0.5}}),
             inverse = map_of({{"type", "box_cox"}, {"lambda", -2}});
  EXPECT_EQ(root->codomain().lower, -2);
  EXPECT_EQ(inverse->codomain().upper, 0.5);
  EXPECT_FALSE(map_of({{"type", "box_cox"}})->codomain().bounded());
  EXPECT_NEAR(root->forward(numbers({9}), {}).value.item<double>(), 4, 1e-14);
  EXPECT_NEAR(inverse->forward(numbers({2}), {}).value.item<double>(), 0.375, 1e-15);
}

TEST(YeoJohnson, IsTheIdentityAtZeroParametersAndSmoothAtZero) {
  const auto map = map_of({{"type", "yeo_johnson"}});
  auto x = numbers({-3, -1e-300, -0.0, 0, 1e-12, 2}).requires_grad_();
  const auto [y, log_det] = map->forward(x, torch::zeros({6, 1}, torch::kDouble));
  EXPECT_TRUE(torch::allclose(y, x, 1e-14, 0)) << y;
  EXPECT_NEAR(log_det.item<double>(), 0, 1e-14);
  const auto skewed = map->forward(x, torch::full({6, 1}, 3.0, torch::kDouble)).value;
  const auto slope = torch::autograd::grad({skewed.sum()}, {x})[0];
  EXPECT_EQ(slope[2].item<double>(), 1);
  EXPECT_EQ(slope[3].item<double>(), 1);
}

TEST(YeoJohnson, NearsTheLogarithmAtTheEndsOfItsPower) {
  const auto map = map_of({{"type", "yeo_johnson"}});
  for (auto dtype : {torch::kFloat32, torch::kFloat64}) {
    const auto x = torch::tensor({-5.0, 5.0}, dtype);
    const auto low = map->forward(x, torch::full({2, 1}, -200.0, dtype)).value;  // lambda = 0.001
    const auto high = map->forward(x, torch::full({2, 1}, 200.0, dtype)).value;  // lambda = 1.999
    EXPECT_NEAR(low[1].item<double>(), std::log(6.0), 2e-3);
    EXPECT_NEAR(low[0].item<double>(), -17.5, 0.05);  // -(6^2 - 1) / 2
    EXPECT_NEAR(high[0].item<double>(), -std::log(6.0), 2e-3);
    EXPECT_NEAR(high[1].item<double>(), 17.5, 0.05);
  }
}

TEST(Univariate, WrongOptionsAreRefused) {
  const auto message = [](const Json& spec) { return error_of([&] { build_univariate(spec); }); };
  EXPECT_EQ(message({{"type", "leaky_relu"}, {"slope", 0}}), "slope: must be above 0 and finite, got 0");
  EXPECT_EQ(message({{"type", "logit"}, {"lower", 2}}), "upper: must be finite and above lower (2), got 1");
  EXPECT_NE(message({{"type", "tanh"}, {"scale", 1}}).find("unknown key 'scale'"), std::string::npos);
}

}  // namespace
}  // namespace diffeo::testing
