#include "diffeo/flows/normal.h"

#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <numbers>

namespace diffeo {

Tensor standard_normal_log_prob(const Tensor& z) {
  return -0.5 * (z.square() + std::log(2 * std::numbers::pi)).sum(-1);
}

Normal::Normal(const Options& options) : Distribution(Space::reals(options.features)), options_(options) {
  if (options.features < 1) throw SpecError("features", c10::str("must be at least 1, got ", options.features));
  if (!options.trainable) return;
  mean_ = register_parameter("mean", at::zeros({options.features}));
  log_scale_ = register_parameter("log_scale", at::zeros({options.features}));
}

Tensor Normal::evaluate(const Tensor& x, const Tensor&) {
  if (!options_.trainable) return standard_normal_log_prob(x);
  return standard_normal_log_prob((x - mean_) * (-log_scale_).exp()) - log_scale_.sum();
}

Drawn Normal::simulate(at::IntArrayRef batch, const Tensor&) {
  auto shape = batch.vec();
  shape.push_back(options_.features);
  const auto z = at::randn(shape, tensor_options());
  if (!options_.trainable) return {z, standard_normal_log_prob(z)};
  return {mean_ + log_scale_.exp() * z, standard_normal_log_prob(z) - log_scale_.sum()};
}

DIFFEO_DISTRIBUTION(normal, Normal, "Normal with independent features.",
    {"standard", {{"features", 2}}},
    {"trainable", {{"features", 3}, {"trainable", true}}});

}  // namespace diffeo
