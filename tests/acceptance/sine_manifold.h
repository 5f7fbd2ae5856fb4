#pragma once

#include <torch/types.h>

#include <cmath>
#include <numbers>

#include "diffeo/trainers/fit.h"
#include "diffeo/trainers/free_form_injective.h"

// The curve (t, sin(pi t / 2)) with t standard normal, and free-form injective flows of one dimension trained on points
// near to it.
namespace diffeo::testing {

constexpr double quarter_turn = std::numbers::pi / 2;

inline Tensor on_sine(const Tensor& t) { return torch::stack({t, (quarter_turn * t).sin()}, -1); }

/// Mean negative log density of points on the curve with respect to its length, nats: 1.7803.
inline double sine_entropy() {
  const auto t = torch::linspace(-9, 9, 200001, torch::kFloat64);
  const auto speed = (quarter_turn * (quarter_turn * t).cos()).square() + 1;
  const auto nll = 0.5 * (t.square() + std::log(2 * std::numbers::pi) + speed.log());
  return torch::trapezoid(nll * (-0.5 * t.square()).exp() / std::sqrt(2 * std::numbers::pi), t).item<double>();
}

struct SineFit {
  double nll = 0;             ///< on-manifold, mean over clean points, nats
  double reconstruction = 0;  ///< mean squared distance of clean points to their projections
  double deviation = 0;       ///< of the latent variable
  double distance = 0;        ///< of samples to the curve, mean
  double curvature = 0;       ///< the largest of the decoder's curve for z in [-3, 3]
};

/// A residual network of three blocks of 64 units each way, trained on clean points with noise 0.1 added.
inline FlowPtr fit_sine(const FreeFormInjective::Options& options, int64_t steps, uint64_t seed) {
  torch::manual_seed(seed);
  const Json net = {{"width", 64}, {"depth", 3}};
  const auto flow = build_flow(
      {{"type", "flow"},
       {"layers", {{{"type", "free_form"}, {"features", 2}, {"latent", 1}, {"encoder", net}, {"decoder", net}}}},
       {"base", {{"type", "normal"}, {"features", 1}}}});
  FreeFormInjective objective(flow, options);
  const auto data = in_memory({.x = on_sine(torch::randn({100000}))});
  fit(objective, *data, nullptr,
      {.batch_size = 256,
       .steps = steps,
       .learning_rate = 1e-3,
       .clip_norm = 1,
       .checkpoint_seconds = 0,
       .max_bad_steps = 0,
       .seed = seed});
  return flow;
}

/// Distance of points (N, 2) to the curve, by a fine grid of it.
inline Tensor distance_to_sine(const Tensor& points) {
  const auto curve = on_sine(torch::linspace(-6, 6, 12001, points.options()));
  return std::get<0>(torch::cdist(points, curve).min(-1));
}

/// The largest curvature |g' x g''| / |g'|^3 of the decoder's curve, by differences of a fine grid.
inline double largest_curvature(Flow& flow) {
  const double step = 1e-3;
  const auto z = torch::arange(-3, 3, step, torch::kFloat64).unsqueeze(-1);
  const auto x = flow.to_data(z).value;
  const auto first = (x.slice(0, 2) - x.slice(0, 0, -2)) / (2 * step);
  const auto second = (x.slice(0, 2) - 2 * x.slice(0, 1, -1) + x.slice(0, 0, -2)) / (step * step);
  const auto cross = first.select(1, 0) * second.select(1, 1) - first.select(1, 1) * second.select(1, 0);
  return (cross.abs() / first.norm(2, -1).pow(3).clamp_min(1e-12)).max().item<double>();
}

inline SineFit measure_sine(Flow& flow) {
  torch::NoGradGuard no_grad;
  torch::manual_seed(99);
  flow.to(torch::kFloat64);
  flow.eval();
  const auto x = on_sine(torch::randn({20000}, torch::kFloat64));
  const auto [value, log_prob, distance] = flow.project(x);
  return {.nll = -log_prob.mean().item<double>(),
          .reconstruction = distance.square().mean().item<double>(),
          .deviation = flow.to_latent(x).value.std().item<double>(),
          .distance = distance_to_sine(flow.sample(5000)).mean().item<double>(),
          .curvature = largest_curvature(flow)};
}

}  // namespace diffeo::testing
