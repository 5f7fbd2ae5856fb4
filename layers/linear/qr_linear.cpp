#include "diffeo/layers/linear/qr_linear.h"

#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>

#include "diffeo/layers/base/registry.h"
#include "diffeo/layers/linear/householder.h"
#include "diffeo/layers/linear/positive_diagonal.h"

namespace diffeo {
namespace {

/// With no entries below the diagonal, the reflections turn every axis round: Q is minus their product.
Reflections reflections_in(const Tensor& qr) { return Reflections(qr.tril(-1) + at::eye(qr.size(0), qr.options())); }

}  // namespace

QrLinear::QrLinear(const Options& options)
    : Layer(Space::reals(at_least(1, "features", options.features))), options_(options) {
  qr_ = register_parameter("qr", at::eye(options.features) * raw_diagonal_of_one());
  if (options.bias) bias_ = register_parameter("bias", at::zeros({options.features}));
}

Mapped QrLinear::map(const Tensor& x, const Tensor&) {
  const PositiveUpper upper(qr_);
  const auto weight = -reflections_in(qr_).times(upper.matrix);
  return {at::linear(x, weight, bias_), upper.log_det.expand(x.sizes().slice(0, x.dim() - 1))};
}

Mapped QrLinear::unmap(const Tensor& y, const Tensor&) {
  const PositiveUpper upper(qr_);
  const auto rows = (bias_.defined() ? y - bias_ : y).reshape({-1, options_.features});
  const auto turned = -reflections_in(qr_).transposed_times(rows.t());
  const auto x = at::linalg_solve_triangular(upper.matrix, turned, /*upper=*/true).t();
  return {x.reshape(y.sizes()), -upper.log_det.expand(y.sizes().slice(0, y.dim() - 1))};
}

DIFFEO_LAYER(qr_linear, QrLinear, "Linear map as a rotation times a triangular matrix (Hoogeboom et al. 2019).", "y = Q R x + b, Q a product of reflections, log|det| = sum_i log R_ii", "D^2 both ways",
             {"plain", {{"features", 4}}}, {"one_feature", {{"features", 1}}},
             {"no_bias", {{"features", 3}, {"bias", false}}});

}  // namespace diffeo
