#include "diffeo/samplers/annealed_langevin.h"

#include <ATen/ops/randn_like.h>

#include <cmath>

#include "diffeo/layers/base/ranges.h"

namespace diffeo {
namespace {

void check_options(const LangevinOptions& options) {
  at_least(1, "steps", options.steps);
  above_zero("first_step", options.first_step);
  above_zero("last_step", options.last_step);
  not_negative("first_temperature", options.first_temperature);
  not_negative("last_temperature", options.last_temperature);
}

/// Geometrically between two numbers; linearly if one is 0.
double between(double first, double last, double part) {
  if (first > 0 && last > 0) return first * std::pow(last / first, part);
  return first + part * (last - first);
}

}  // namespace

Tensor annealed_langevin(LogDensity& density, const Tensor& start, const LangevinOptions& options, const Tensor& mask) {
  check_options(options);
  torch::NoGradGuard no_grad;
  const auto moves = mask.defined() ? mask.to(start.options()) : mask;
  auto x = start.detach().clone();
  for (int64_t step = 0; step < options.steps; ++step) {
    const double part = options.steps > 1 ? static_cast<double>(step) / static_cast<double>(options.steps - 1) : 0;
    const double size = between(options.first_step, options.last_step, part);
    const bool quiet = options.last_without_noise && step + 1 == options.steps;
    const double temperature = quiet ? 0 : between(options.first_temperature, options.last_temperature, part);
    auto change = size * density.log_prob_and_gradient(x).gradient;
    if (temperature > 0) change = change + std::sqrt(2 * size * temperature) * at::randn_like(x);
    x = x + (moves.defined() ? moves * change : change);
    check(x.isfinite().all().item<bool>(), "annealed_langevin: points left the finite numbers in step ", step,
          "; make the steps smaller than ", size);
  }
  return x;
}

}  // namespace diffeo
