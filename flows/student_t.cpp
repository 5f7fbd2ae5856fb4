#include "diffeo/flows/student_t.h"

#include <ATen/ops/_standard_gamma.h>
#include <ATen/ops/full.h>
#include <ATen/ops/lgamma.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <numbers>

namespace diffeo {
namespace {

/// log G(a + 1/2) - log G(a). Above 10 by its asymptotic series, where the difference of two large numbers would keep
/// few digits; the first term left out is 17 / (14336 a^7), 1e-10.
Tensor log_gamma_step(const Tensor& a) {
  const auto large = a > 10;
  const auto small = a.clamp_max(10), inverse = a.clamp_min(10).reciprocal(), square = inverse.square();
  const auto series = -0.5 * inverse.log() - inverse * (1. / 8 - square * (1. / 192 - square / 640));
  return at::where(large, series, at::lgamma(small + 0.5) - at::lgamma(small));
}

}  // namespace

StudentT::StudentT(const Options& options)
    : Distribution(Space::reals(at_least(1, "features", options.features))), options_(options) {
  if (!(options.degrees > 1)) throw SpecError("degrees", c10::str("must be above 1, got ", options.degrees));
  const auto hold = [&](const char* name, const Tensor& tensor) {
    return options.trainable ? register_parameter(name, tensor) : register_buffer(name, tensor);
  };
  // The inverse of softplus, without the overflow of exp.
  const double raw = options.degrees - 1 + std::log(-std::expm1(1 - options.degrees));
  location_ = hold("location", at::zeros({options.features}));
  log_scale_ = hold("log_scale", at::zeros({options.features}));
  raw_degrees_ = hold("raw_degrees", at::full({options.features}, raw));
}

Tensor StudentT::degrees() const { return 1 + at::softplus(raw_degrees_); }

Tensor StudentT::evaluate(const Tensor& x, const Tensor&) {
  const auto nu = degrees(), z = (x - location_) * (-log_scale_).exp();
  const auto norm = log_gamma_step(nu / 2) - 0.5 * (nu * std::numbers::pi).log() - log_scale_;
  return (norm - 0.5 * (nu + 1) * at::log1p(z.square() / nu)).sum(-1);
}

Drawn StudentT::simulate(at::IntArrayRef batch, const Tensor&) {
  auto shape = batch.vec();
  shape.push_back(options_.features);
  const auto nu = degrees();
  // A normal over the root of a chi-squared over its degrees of freedom.
  const auto gamma = at::_standard_gamma((nu / 2).expand(shape)).clamp_min(1e-30);
  const auto z = at::randn(shape, tensor_options()) * (0.5 * nu / gamma).sqrt();
  const auto x = location_ + log_scale_.exp() * z;
  return {x, evaluate(x, {})};
}

DIFFEO_DISTRIBUTION(student_t, StudentT, "Student's t with independent features and trainable degrees of freedom.",
                    {"one_feature", {{"features", 1}, {"degrees", 4.0}}},
                    {"two_features", {{"features", 2}, {"degrees", 30.0}}},
                    {"fixed", {{"features", 2}, {"trainable", false}}});

}  // namespace diffeo
