#include "diffeo/layers/affine/affine.h"

#include <ATen/ops/log.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>

#include <cmath>

#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

constexpr double least_scale = 1e-3;  // of the sigmoid and softplus forms

/// Sum of s over the features for each point of x, also where the points share one s.
Tensor sum_for(const Tensor& x, const Tensor& s) { return s.sum(-1).expand(x.sizes().slice(0, x.dim() - 1)); }

}  // namespace

Affine::Affine(const Options& options) : options_(options) {
  check_choice("scale", options.scale, {"bounded", "exp", "sigmoid", "softplus"});
  if (!(options.cap > 0)) throw SpecError("cap", c10::str("must be above 0, got ", options.cap));
}

std::vector<double> Affine::identity() const {
  if (options_.scale == "sigmoid") return {std::log((1 - least_scale) / least_scale) - 2, 0};
  if (options_.scale == "softplus") return {std::log(std::expm1(1 - least_scale)), 0};
  return {0, 0};
}

Tensor Affine::log_scale(const Tensor& a) const {
  auto s = options_.scale == "bounded"   ? a / (1 + (a / options_.cap).abs())
           : options_.scale == "exp"     ? a
           : options_.scale == "sigmoid" ? at::log(at::sigmoid(a + 2) + least_scale)
                                         : at::log(at::softplus(a) + least_scale);
  return options_.volume_preserving ? s - s.mean(-1, true) : s;
}

Mapped Affine::forward(const Tensor& x, const Tensor& parameters) const {
  const auto s = log_scale(parameters.select(-1, 0));
  const auto log_det = sum_for(x, options_.volume_preserving ? at::zeros_like(s) : s);
  return {x * s.exp() + parameters.select(-1, 1), log_det};
}

Mapped Affine::inverse(const Tensor& y, const Tensor& parameters) const {
  const auto s = log_scale(parameters.select(-1, 0));
  const auto log_det = sum_for(y, options_.volume_preserving ? at::zeros_like(s) : -s);
  return {(y - parameters.select(-1, 1)) * (-s).exp(), log_det};
}

DIFFEO_UNIVARIATE(affine, Affine, "y = e^s x + t (Dinh et al. 2017, eq. 4).",
    {"bounded", Json::object()},
    {"exp", {{"scale", "exp"}}},
    {"sigmoid", {{"scale", "sigmoid"}}},
    {"softplus", {{"scale", "softplus"}}},
    {"volume_preserving", {{"volume_preserving", true}}});

}  // namespace diffeo
