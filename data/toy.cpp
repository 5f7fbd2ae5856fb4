#include "diffeo/data/toy.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <numbers>

#include "diffeo/layers/base/options.h"

namespace diffeo {
namespace {

constexpr double pi = std::numbers::pi;

/// Draws in float64, so that a seed gives the same points in every dtype.
struct Draw {
  int64_t n;
  at::Generator generator;

  Tensor uniform() const { return at::rand({n}, generator, at::kDouble); }
  Tensor normal() const { return at::randn({n}, generator, at::kDouble); }
  /// Whole numbers 0, ..., count - 1, as float64.
  Tensor choice(int64_t count) const { return at::randint(count, {n}, generator, at::kDouble); }
};

Tensor points(const Tensor& a, const Tensor& b) { return at::stack({a, b}, -1); }

/// Around (cos angle, sin angle) * radius with normal noise.
Tensor on_circle(const Draw& draw, const Tensor& angle, const Tensor& radius, double noise) {
  return points(radius * angle.cos() + noise * draw.normal(), radius * angle.sin() + noise * draw.normal());
}

Tensor moons(const Draw& draw) {
  const auto angle = pi * draw.uniform();
  const auto lower = draw.choice(2).to(at::kBool);
  const auto a = at::where(lower, 1 - angle.cos(), angle.cos()) + 0.1 * draw.normal();
  const auto b = at::where(lower, 0.5 - angle.sin(), angle.sin()) + 0.1 * draw.normal();
  return points(2 * a - 1, 2 * b - 0.2);
}

Tensor circles(const Draw& draw) {
  return 3 * on_circle(draw, 2 * pi * draw.uniform(), 0.5 + 0.5 * draw.choice(2), 0.08);
}

Tensor rings(const Draw& draw) {
  return 3 * on_circle(draw, 2 * pi * draw.uniform(), 0.25 + 0.25 * draw.choice(4), 0.08);
}

Tensor spirals(const Draw& draw) {
  const auto turn = 3 * pi * draw.uniform().sqrt();
  const auto arm = 2 * draw.choice(2) - 1;
  const auto a = arm * (-turn.cos() * turn + 0.5 * draw.uniform());
  const auto b = arm * (turn.sin() * turn + 0.5 * draw.uniform());
  return points(a / 3 + 0.1 * draw.normal(), b / 3 + 0.1 * draw.normal());
}

Tensor pinwheel(const Draw& draw) {
  const auto radius = 1 + 0.3 * draw.normal(), across = 0.1 * draw.normal();
  const auto angle = 2 * pi / 5 * draw.choice(5) + 0.25 * radius.exp();
  return 2 * points(radius * angle.cos() - across * angle.sin(), radius * angle.sin() + across * angle.cos());
}

Tensor checkerboard(const Draw& draw) {
  const auto a = 4 * draw.uniform() - 2;
  const auto b = draw.uniform() - 2 * draw.choice(2) + a.floor().remainder(2);
  return 2 * points(a, b);
}

Tensor eight_gaussians(const Draw& draw) {
  const auto angle = pi / 4 * draw.choice(8);
  return on_circle(draw, angle, (0 * angle).add(4), 0.5) / std::numbers::sqrt2;
}

struct Density {
  std::string name;
  Tensor (*draw)(const Draw&);
};

const std::vector<Density>& densities() {
  static const std::vector<Density> all{
      {"moons", moons},       {"circles", circles},           {"spirals", spirals},
      {"pinwheel", pinwheel}, {"checkerboard", checkerboard}, {"8gaussians", eight_gaussians},
      {"rings", rings}};
  return all;
}

}  // namespace

const std::vector<std::string>& toy_names() {
  static const auto names = [] {
    std::vector<std::string> names;
    for (const auto& density : densities()) names.push_back(density.name);
    return names;
  }();
  return names;
}

Tensor toy(const std::string& name, int64_t n, uint64_t seed, torch::Dtype dtype) {
  check(n >= 0, "toy: expected a number of points of at least 0, got ", n);
  for (const auto& density : densities())
    if (density.name == name) return density.draw({n, at::detail::createCPUGenerator(seed)}).to(dtype);
  throw Error(c10::str("toy: unknown density '", name, "'", suggestion(name, toy_names()), "; known are ",
                       c10::Join(", ", toy_names())));
}

}  // namespace diffeo
