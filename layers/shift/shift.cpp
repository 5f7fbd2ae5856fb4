#include "diffeo/layers/shift/shift.h"

#include <ATen/ops/remainder.h>

#include <numbers>

#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

constexpr double pi = std::numbers::pi;

Tensor no_log_det(const Tensor& points) { return points.new_zeros(points.sizes().slice(0, points.dim() - 1)); }

/// The same angle in [-pi, pi).
Tensor wrapped(const Tensor& angle) { return at::remainder(angle + pi, 2 * pi) - pi; }

}  // namespace

Mapped Additive::forward(const Tensor& x, const Tensor& parameters) const {
  return {x + parameters.select(-1, 0), no_log_det(x)};
}

Mapped Additive::inverse(const Tensor& y, const Tensor& parameters) const {
  return {y - parameters.select(-1, 0), no_log_det(y)};
}

Axis CircularShift::domain() const { return {-pi, pi, true}; }

Mapped CircularShift::forward(const Tensor& x, const Tensor& parameters) const {
  return {wrapped(x + parameters.select(-1, 0)), no_log_det(x)};
}

Mapped CircularShift::inverse(const Tensor& y, const Tensor& parameters) const {
  return {wrapped(y - parameters.select(-1, 0)), no_log_det(y)};
}

DIFFEO_UNIVARIATE(additive, Additive, "y = x + t (NICE, Dinh et al. 2014).", "y = x + t, y' = 1", {"plain", Json::object()});

DIFFEO_UNIVARIATE(circular_shift, CircularShift, "Turns an angle by t (Rezende et al. 2020).", "y = x + t on the circle, y' = 1",
                  {"plain", Json::object()});

}  // namespace diffeo
