#include "diffeo/layers/affine/affine.h"

#include <algorithm>
#include <cmath>

#include "diffeo/layers/affine/affine_op.h"
#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

const std::vector<std::string> scales{"bounded", "exp", "sigmoid", "softplus"};  // in the order of affine::Scale

affine::Form form_of(const Affine::Options& options) {
  check_choice("scale", options.scale, scales);
  if (!(options.cap > 0)) throw SpecError("cap", c10::str("must be above 0, got ", options.cap));
  const auto index = std::find(scales.begin(), scales.end(), options.scale) - scales.begin();
  return {static_cast<affine::Scale>(index), options.cap};
}

}  // namespace

Affine::Affine(const Options& options) : options_(options), form_(form_of(options)) {}

std::vector<double> Affine::identity() const {
  if (options_.scale == "sigmoid") return {std::log((1 - affine::least_scale) / affine::least_scale) - 2, 0};
  if (options_.scale == "softplus") return {std::log(std::expm1(1 - affine::least_scale)), 0};
  return {0, 0};
}

Tensor Affine::centred_log_scale(const Tensor& parameters) const {
  const auto s = affine::log_scale(parameters.select(-1, 0), form_);
  return s - s.mean(-1, true);
}

Mapped Affine::forward(const Tensor& x, const Tensor& parameters) const {
  if (options_.volume_preserving) {
    const auto factor = centred_log_scale(parameters).exp();
    return {x * factor + parameters.select(-1, 1), x.new_zeros(x.sizes().slice(0, x.dim() - 1))};
  }
  const auto [value, log_det] = affine::apply(x, parameters, form_, false);
  return {value, log_det};
}

Mapped Affine::inverse(const Tensor& y, const Tensor& parameters) const {
  if (options_.volume_preserving) {
    const auto factor = (-centred_log_scale(parameters)).exp();
    return {(y - parameters.select(-1, 1)) * factor, y.new_zeros(y.sizes().slice(0, y.dim() - 1))};
  }
  const auto [value, log_det] = affine::apply(y, parameters, form_, true);
  return {value, log_det};
}

bool Affine::has_gradients(const Tensor& points) const {
  return !options_.volume_preserving && affine::has_kernel(points);
}

MapGradients Affine::gradients(const Tensor& points, const Tensor& parameters, const Tensor& value,
                               const Tensor& by_value, const Tensor& by_log_det, bool inverse) const {
  const auto [by_points, by_parameters] =
      affine::gradients(points, parameters, value, by_value, by_log_det, form_, inverse);
  return {by_points, by_parameters};
}

DIFFEO_UNIVARIATE(affine, Affine, "y = e^s x + t (Dinh et al. 2017, eq. 4).", "y = e^s x + t, log y' = s (bounded, or another positive function of s)",
    {"bounded", Json::object()},
    {"exp", {{"scale", "exp"}}},
    {"sigmoid", {{"scale", "sigmoid"}}},
    {"softplus", {{"scale", "softplus"}}},
    {"volume_preserving", {{"volume_preserving", true}}});

}  // namespace diffeo
