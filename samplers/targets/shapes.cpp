#include "diffeo/samplers/targets/shapes.h"

#include <torch/types.h>

#include <cmath>
#include <numbers>

#include "diffeo/layers/base/ranges.h"

namespace diffeo {
namespace {

constexpr double largest_exponent = 80;  // exp of it is a number in every precision

double log_two_pi() { return std::log(2 * std::numbers::pi); }

/// Log density of independent normals of mean 0 and deviation 1, summed over the last dimension.
Tensor round_normal(const Tensor& x) {
  return -0.5 * x.square().sum(-1) - 0.5 * static_cast<double>(x.size(-1)) * log_two_pi();
}

/// Log density of N(0, scale^2).
Tensor normal_on_line(const Tensor& x, double scale) {
  return -0.5 * (x / scale).square() - std::log(scale) - 0.5 * log_two_pi();
}

struct Term {
  double height, a, b, c, x, y;
};
constexpr Term muller_brown_terms[] = {{-200, -1, 0, -10, 1, 0},
                                       {-100, -1, 0, -10, 0, 0.5},
                                       {-170, -6.5, 11, -6.5, -0.5, 1.5},
                                       {15, 0.7, 0.6, 0.7, -1, 1}};

}  // namespace

Funnel::Funnel(const Options& options)
    : Target(Space::reals(at_least(2, "features", options.features))), options_(options) {
  above_zero("scale", options.scale);
}

Tensor Funnel::evaluate(const Tensor& x) {
  const auto first = x.select(-1, 0), rest = x.narrow(-1, 1, options_.features - 1);
  const auto log_variance = first.clamp(-largest_exponent, largest_exponent);
  return normal_on_line(first, options_.scale) - 0.5 * (-log_variance).exp() * rest.square().sum(-1) -
         0.5 * static_cast<double>(options_.features - 1) * (log_variance + log_two_pi());
}

Sloped Funnel::evaluate_with_gradient(const Tensor& x) {
  const auto first = x.select(-1, 0), rest = x.narrow(-1, 1, options_.features - 1);
  const auto precision = (-first.clamp(-largest_exponent, largest_exponent)).exp();
  const auto inside = (first.abs() <= largest_exponent).to(x.scalar_type());
  const auto by_first = -first / (options_.scale * options_.scale) +
                        0.5 * inside * (precision * rest.square().sum(-1) - static_cast<double>(options_.features - 1));
  return {evaluate(x), torch::cat({by_first.unsqueeze(-1), -precision.unsqueeze(-1) * rest}, -1)};
}

Banana::Banana(const Options& options)
    : Target(Space::reals(at_least(2, "features", options.features))), options_(options) {
  above_zero("scale", options.scale);
  finite("bend", options.bend);
}

Tensor Banana::evaluate(const Tensor& x) {
  const auto first = x.select(-1, 0);
  const auto straight = x.select(-1, 1) + options_.bend * (first.square() - options_.scale * options_.scale);
  return normal_on_line(first, options_.scale) + round_normal(straight.unsqueeze(-1)) +
         round_normal(x.narrow(-1, 2, options_.features - 2));
}

Sloped Banana::evaluate_with_gradient(const Tensor& x) {
  const auto first = x.select(-1, 0);
  const auto straight = x.select(-1, 1) + options_.bend * (first.square() - options_.scale * options_.scale);
  auto gradient = -x;
  gradient.select(-1, 0).copy_(-first / (options_.scale * options_.scale) - 2 * options_.bend * first * straight);
  gradient.select(-1, 1).copy_(-straight);
  return {evaluate(x), gradient};
}

MullerBrown::MullerBrown(const Options& options) : Target(Space::reals(2)), options_(options) {
  above_zero("temperature", options.temperature);
}

Tensor MullerBrown::evaluate(const Tensor& x) {
  auto energy = torch::zeros_like(x.select(-1, 0));
  for (const auto& term : muller_brown_terms) {
    const auto dx = x.select(-1, 0) - term.x, dy = x.select(-1, 1) - term.y;
    const auto exponent = term.a * dx.square() + term.b * dx * dy + term.c * dy.square();
    energy = energy + term.height * exponent.clamp_max(largest_exponent).exp();
  }
  return -energy / options_.temperature;
}

Sloped MullerBrown::evaluate_with_gradient(const Tensor& x) {
  auto energy = torch::zeros_like(x.select(-1, 0)), by_x = energy, by_y = energy;
  for (const auto& term : muller_brown_terms) {
    const auto dx = x.select(-1, 0) - term.x, dy = x.select(-1, 1) - term.y;
    const auto exponent = term.a * dx.square() + term.b * dx * dy + term.c * dy.square();
    const auto part = term.height * exponent.clamp_max(largest_exponent).exp();
    const auto moving = part * (exponent <= largest_exponent);
    energy = energy + part;
    by_x = by_x + moving * (2 * term.a * dx + term.b * dy);
    by_y = by_y + moving * (term.b * dx + 2 * term.c * dy);
  }
  return {-energy / options_.temperature, -torch::stack({by_x, by_y}, -1) / options_.temperature};
}

std::optional<double> MullerBrown::log_normalizer() const {
  if (options_.temperature > 100) return std::nullopt;
  constexpr int64_t points = 801;
  const auto x = torch::linspace(-3.5, 2.5, points, torch::kFloat64),
             y = torch::linspace(-2, 3.5, points, torch::kFloat64);
  const auto grid = torch::stack(torch::meshgrid({x, y}, "ij"), -1);
  const double area = (6.0 / (points - 1)) * (5.5 / (points - 1));
  return MullerBrown(options_).log_prob(grid).flatten().logsumexp(0).item<double>() + std::log(area);
}

Phi4::Phi4(const Options& options)
    : Target(Space::reals(at_least(2, "side", options.side) * options.side)), options_(options) {
  finite("kappa", options.kappa);
  not_negative("lambda", options.lambda);
  if (options.lambda == 0 && std::abs(options.kappa) >= 0.25)
    throw SpecError("kappa",
                    c10::str("a free field (lambda 0) has a density only between -0.25 and 0.25, got ", options.kappa));
}

Tensor Phi4::evaluate(const Tensor& x) {
  const auto field = x.unflatten(-1, {options_.side, options_.side});
  const auto square = field.square();
  const auto ahead = field.roll(-1, -1) + field.roll(-1, -2);
  return -((1 - 2 * options_.lambda) * square + options_.lambda * square.square() - 2 * options_.kappa * field * ahead)
              .sum({-2, -1});
}

Sloped Phi4::evaluate_with_gradient(const Tensor& x) {
  const auto field = x.unflatten(-1, {options_.side, options_.side});
  const auto around = field.roll(-1, -1) + field.roll(1, -1) + field.roll(-1, -2) + field.roll(1, -2);
  const auto gradient =
      2 * options_.kappa * around - field * (2 * (1 - 2 * options_.lambda) + 4 * options_.lambda * field.square());
  return {evaluate(x), gradient.flatten(-2)};
}

std::optional<double> Phi4::log_normalizer() const {
  if (options_.lambda != 0) return std::nullopt;
  double sum = 0;
  for (int64_t i = 0; i < options_.side; ++i)
    for (int64_t j = 0; j < options_.side; ++j) {
      const auto wave = [&](int64_t k) {
        return std::cos(2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(options_.side));
      };
      sum += 0.5 * std::log(std::numbers::pi / (1 - 2 * options_.kappa * (wave(i) + wave(j))));
    }
  return sum;
}

DIFFEO_TARGET(funnel, Funnel, "A funnel whose width depends on its first feature; normalised (Neal 2003).",
              "log p = log N(x1; 0, scale^2) + sum_{i>1} log N(x_i; 0, exp(x1))", {"three", {{"features", 3}}});

DIFFEO_TARGET(banana, Banana, "A normal bent along a parabola; normalised (Haario et al. 1999).",
              "log p = log N(x1; 0, scale^2) + log N(x2 + bend (x1^2 - scale^2); 0, 1) + log N(x_rest; 0, I)",
              {"plane", {{"scale", 2.0}, {"bend", 0.2}}}, {"four_features", {{"features", 4}}});

DIFFEO_TARGET(muller_brown, MullerBrown, "The potential of Müller and Brown in the plane (Müller and Brown 1979).",
              "log p = -1/temperature sum_k A_k exp(a_k dx^2 + b_k dx dy + c_k dy^2)", {"warm", Json::object()});

DIFFEO_TARGET(phi4, Phi4, "A real scalar field on a periodic square lattice (Nicoli et al. 2021).",
              "log p = -sum_s [(1 - 2 lambda) x_s^2 + lambda x_s^4 - 2 kappa sum_mu x_s x_{s+mu}]",
              {"four_by_four", {{"side", 4}}}, {"free", {{"side", 3}, {"kappa", 0.2}, {"lambda", 0.0}}});

}  // namespace diffeo
