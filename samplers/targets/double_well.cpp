#include "diffeo/samplers/targets/double_well.h"

#include <torch/types.h>

#include <cmath>
#include <numbers>

#include "diffeo/layers/base/ranges.h"

namespace diffeo {
namespace {

Well checked_well(double a, double b, double c) {
  finite("a", a);
  finite("b", b);
  return {a, b, above_zero("c", c)};
}

double log_two_pi() { return std::log(2 * std::numbers::pi); }

/// Differences x_i - x_j (*batch, n, n, d) and distances (*batch, n, n), those of a particle from itself 1.
std::pair<Tensor, Tensor> apart(const Tensor& x, int64_t particles, int64_t dimensions) {
  const auto points = x.unflatten(-1, {particles, dimensions});
  const auto differences = points.unsqueeze(-2) - points.unsqueeze(-3);
  const auto squares = differences.square().sum(-1) + torch::eye(particles, x.options());
  return {differences, squares.clamp_min(1e-12).sqrt()};
}

}  // namespace

Tensor Well::potential(const Tensor& x) const {
  const auto square = x.square();
  return a * x + b * square + c * square.square();
}

Tensor Well::slope(const Tensor& x) const { return a + x * (2 * b + 4 * c * x.square()); }

double Well::log_integral() const {
  const auto u = [&](double x) { return x * (a + x * (b + c * x * x)); };
  double end = 1;
  while (std::min(u(end), u(-end)) < 800) end *= 1.25;
  constexpr int points = 40001;
  const double step = 2 * end / (points - 1);
  double lowest = 0;
  for (int i = 0; i < points; ++i) lowest = std::min(lowest, u(-end + i * step));
  double sum = 0;
  for (int i = 0; i < points; ++i) sum += std::exp(lowest - u(-end + i * step));
  return std::log(sum * step) - lowest;
}

DoubleWell::DoubleWell(const Options& options)
    : Target(Space::reals(at_least(1, "features", options.features))),
      options_(options),
      well_(checked_well(options.a, options.b, options.c)) {}

std::optional<double> DoubleWell::log_normalizer() const {
  return well_.log_integral() + 0.5 * static_cast<double>(options_.features - 1) * log_two_pi();
}

Tensor DoubleWell::evaluate(const Tensor& x) {
  return -well_.potential(x.select(-1, 0)) - 0.5 * x.narrow(-1, 1, options_.features - 1).square().sum(-1);
}

Sloped DoubleWell::evaluate_with_gradient(const Tensor& x) {
  auto gradient = -x;
  gradient.select(-1, 0).copy_(-well_.slope(x.select(-1, 0)));
  return {evaluate(x), gradient};
}

ManyDoubleWells::ManyDoubleWells(const Options& options)
    : Target(Space::reals(2 * at_least(1, "wells", options.wells))),
      options_(options),
      well_(checked_well(options.a, options.b, options.c)) {}

std::optional<double> ManyDoubleWells::log_normalizer() const {
  return static_cast<double>(options_.wells) * (well_.log_integral() + 0.5 * log_two_pi());
}

Tensor ManyDoubleWells::evaluate(const Tensor& x) {
  const auto pairs = x.unflatten(-1, {options_.wells, 2});
  return -(well_.potential(pairs.select(-1, 0)) + 0.5 * pairs.select(-1, 1).square()).sum(-1);
}

Sloped ManyDoubleWells::evaluate_with_gradient(const Tensor& x) {
  const auto pairs = x.unflatten(-1, {options_.wells, 2});
  const auto gradient = torch::stack({-well_.slope(pairs.select(-1, 0)), -pairs.select(-1, 1)}, -1).flatten(-2);
  return {evaluate(x), gradient};
}

ParticleDoubleWell::ParticleDoubleWell(const Options& options)
    : Target(Space::reals(at_least(2, "particles", options.particles) * at_least(1, "dimensions", options.dimensions))),
      options_(options) {
  checked_well(options.a, options.b, options.c);
  finite("distance", options.distance);
  above_zero("strength", options.strength);
}

Tensor ParticleDoubleWell::evaluate(const Tensor& x) {
  const auto distances = apart(x, options_.particles, options_.dimensions).second;
  const auto others = 1 - torch::eye(options_.particles, x.options());
  const auto wells = Well{options_.a, options_.b, options_.c}.potential(distances - options_.distance) * others;
  const auto centre = x.unflatten(-1, {options_.particles, options_.dimensions}).mean(-2);
  return -0.5 * wells.sum({-2, -1}) -
         0.5 * options_.strength * static_cast<double>(options_.particles) * centre.square().sum(-1);
}

Sloped ParticleDoubleWell::evaluate_with_gradient(const Tensor& x) {
  const auto [differences, distances] = apart(x, options_.particles, options_.dimensions);
  const auto pull = Well{options_.a, options_.b, options_.c}.slope(distances - options_.distance) / distances;
  const auto centre = x.unflatten(-1, {options_.particles, options_.dimensions}).mean(-2, true);
  const auto gradient = -(pull.unsqueeze(-1) * differences).sum(-2) - options_.strength * centre;
  return {evaluate(x), gradient.flatten(-2)};
}

DIFFEO_TARGET(double_well, DoubleWell, "Two wells along the first feature, normal in the others (Wu et al. 2020).",
              "log p = -(a x1 + b x1^2 + c x1^4) - 1/2 |x_rest|^2", {"plane", Json::object()},
              {"five_features", {{"features", 5}, {"a", 0.3}, {"b", -3.0}}}, {"line", {{"features", 1}}});

DIFFEO_TARGET(many_double_wells, ManyDoubleWells, "A product of double wells in the plane, with 2^wells modes.",
              "log p = -sum_i (a x_2i + b x_2i^2 + c x_2i^4 + 1/2 x_2i+1^2)", {"three", {{"wells", 3}}});

DIFFEO_TARGET(particle_double_well, ParticleDoubleWell,
              "Particles whose distances are in a double well (DW4, Köhler et al. 2020).",
              "log p = -sum_{i<j} (a s + b s^2 + c s^4) - strength n/2 |mean x|^2, s = |x_i - x_j| - distance",
              {"dw4", Json::object()}, {"three_in_space", {{"particles", 3}, {"dimensions", 3}, {"a", 0.5}}});

}  // namespace diffeo
