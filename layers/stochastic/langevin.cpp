#include "diffeo/layers/stochastic/langevin.h"

#include <torch/types.h>

#include <cmath>

#include "diffeo/layers/base/ranges.h"
#include "diffeo/layers/base/registry.h"

namespace diffeo {

Langevin::Langevin(const Options& options, LogDensityPtr density, LogDensityPtr start)
    : Kernel(options, std::move(density), std::move(start)), options_(options) {
  learn_step_size(options.trainable);
}

Mapped Langevin::move(const Tensor& x) {
  const auto e = step(), root = (2 * e).sqrt(), half_root = (e / 2).sqrt();
  auto point = x;
  auto force = slope(x).gradient;
  Tensor work;
  for (int64_t i = 0; i < options_.steps; ++i) {
    const auto noise = torch::randn_like(x);
    point = point + e * force + root * noise;
    const auto next = slope(point).gradient;
    const auto back = half_root * (force + next) + noise;
    const auto gain = 0.5 * sum_of_event(noise.square() - back.square());
    work = work.defined() ? work + gain : gain;
    force = next;
  }
  return {point, work};
}

Underdamped::Underdamped(const Options& options, LogDensityPtr density, LogDensityPtr start)
    : Kernel(options, std::move(density), std::move(start)), options_(options) {
  above_zero("friction", options.friction);
  above_zero("mass", options.mass);
  learn_step_size(options.trainable);
}

Mapped Underdamped::move(const Tensor& x) {
  const double g = options_.friction, m = options_.mass;
  const auto t = step(), kick = (4 * g * m / t).sqrt(), drag = (g * m * t).sqrt();
  auto point = x;
  auto force = slope(x).gradient;
  auto velocity = torch::randn_like(x) / std::sqrt(m);
  auto work = 0.5 * m * sum_of_event(velocity.square());
  for (int64_t i = 0; i < options_.steps; ++i) {
    const auto first = torch::randn_like(x), second = torch::randn_like(x);
    const auto halfway = velocity + t / (2 * m) * (force - g * m * velocity + kick * first);
    point = point + t * halfway;
    force = slope(point).gradient;
    const auto last = (halfway + t / (2 * m) * (force + kick * second)) / (1 + 0.5 * g * t);
    const auto back_first = second - drag * last, back_second = first - drag * velocity;
    work = work + 0.5 * sum_of_event(first.square() + second.square() - back_first.square() - back_second.square());
    velocity = last;
  }
  return {point, work - 0.5 * m * sum_of_event(velocity.square())};
}

DIFFEO_LAYER(langevin, Langevin, "Overdamped Langevin steps with their path weight (Wu et al. 2020).",
             "y = x + e f(x) + sqrt(2e) n, f = d log p/dx; dS = 1/2 (|n|^2 - |n'|^2), n' = -sqrt(e/2) (f(x) + f(y)) - n",
             "both ways: a gradient of the density for each step, and one",
             {"double_well",
              {{"density", {{"type", "double_well"}}}, {"lambda", 0.5}, {"steps", 5}, {"step_size", 0.01}}},
             {"fixed",
              {{"density", {{"type", "funnel"}, {"features", 3}}},
               {"start", {{"type", "student_t"}, {"features", 3}, {"trainable", false}}},
               {"lambda", 0.3},
               {"steps", 2},
               {"step_size", 0.05},
               {"trainable", false}}});

DIFFEO_LAYER(underdamped, Underdamped,
             "Underdamped Langevin steps from a fresh velocity, with their path weight (Wu et al. 2020).",
             "y = x + t u, u = v + t/(2m) (f(x) - g m v + s n1); dS = 1/2 sum (|n|^2 - |n'|^2) + m/2 (|v|^2 - |v'|^2)",
             "both ways: a gradient of the density for each step, and one",
             {"double_well",
              {{"density", {{"type", "double_well"}}}, {"lambda", 0.5}, {"steps", 5}, {"step_size", 0.05}}},
             {"heavy",
              {{"density", {{"type", "gaussian_mixture"}}},
               {"steps", 3},
               {"step_size", 0.2},
               {"friction", 0.5},
               {"mass", 2.0}}});

}  // namespace diffeo
