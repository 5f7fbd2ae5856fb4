#include "diffeo/flows/logistic.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/zeros.h>

namespace diffeo {
namespace {

Tensor standard_log_prob(const Tensor& z) { return (at::log_sigmoid(z) + at::log_sigmoid(-z)).sum(-1); }

}  // namespace

Logistic::Logistic(const Options& options)
    : Distribution(Space::reals(at_least(1, "features", options.features))), options_(options) {
  if (!options.trainable) return;
  location_ = register_parameter("location", at::zeros({options.features}));
  log_scale_ = register_parameter("log_scale", at::zeros({options.features}));
}

Tensor Logistic::evaluate(const Tensor& x, const Tensor&) {
  if (!options_.trainable) return standard_log_prob(x);
  return standard_log_prob((x - location_) * (-log_scale_).exp()) - log_scale_.sum();
}

Drawn Logistic::simulate(at::IntArrayRef batch, const Tensor&) {
  auto shape = batch.vec();
  shape.push_back(options_.features);
  // The log ratio of two exponential variables: no uniform number near 1 cuts the tail off.
  const auto log_exponential = [&] {
    return at::empty(shape, tensor_options()).exponential_().clamp_min_(1e-30).log_();
  };
  const auto z = log_exponential() - log_exponential();
  if (!options_.trainable) return {z, standard_log_prob(z)};
  return {location_ + log_scale_.exp() * z, standard_log_prob(z) - log_scale_.sum()};
}

DIFFEO_DISTRIBUTION(logistic, Logistic, "Logistic with independent features (Dinh et al. 2014).",
                    {"standard", {{"features", 1}}}, {"trainable", {{"features", 2}, {"trainable", true}}});

}  // namespace diffeo
