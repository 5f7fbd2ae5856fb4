#include "diffeo/layers/normalization/batch_norm.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "diffeo/layers/base/ranges.h"
#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

/// A step that is skipped for its NaN must not live on in the averages.
void note(Tensor& running, const Tensor& value, double momentum) {
  torch::NoGradGuard no_grad;
  running.copy_(at::where(value.isfinite(), running.lerp(value, momentum), running));
}

}  // namespace

BatchNorm::BatchNorm(const Options& options)
    : Layer(Space::reals(at_least(1, "features", options.features))), options_(options) {
  if (!(options.momentum > 0 && options.momentum <= 1))
    throw SpecError("momentum", c10::str("must be in (0, 1], got ", options.momentum));
  above_zero("eps", options.eps);
  log_scale_ = register_parameter("log_scale", at::zeros({options.features}));
  shift_ = register_parameter("shift", at::zeros({options.features}));
  running_mean_ = register_buffer("running_mean", at::zeros({options.features}));
  running_variance_ = register_buffer("running_variance", at::ones({options.features}));
}

Mapped BatchNorm::map(const Tensor& x, const Tensor&) {
  const auto batch = x.sizes().slice(0, x.dim() - 1);
  auto mean = running_mean_, variance = running_variance_;
  if (is_training() && x.numel() >= 2 * options_.features) {
    std::tie(variance, mean) = at::var_mean(x.reshape({-1, options_.features}), 0, /*unbiased=*/false);
    note(running_mean_, mean.detach(), options_.momentum);
    note(running_variance_, variance.detach(), options_.momentum);
  }
  const auto s = log_scale_ - 0.5 * (variance + options_.eps).log();
  return {(x - mean) * s.exp() + shift_, s.sum().expand(batch)};
}

Mapped BatchNorm::unmap(const Tensor& y, const Tensor&) {
  const auto s = log_scale_ - 0.5 * (running_variance_ + options_.eps).log();
  return {(y - shift_) * (-s).exp() + running_mean_, -s.sum().expand(y.sizes().slice(0, y.dim() - 1))};
}

DIFFEO_LAYER(batch_norm, BatchNorm, "Batch normalisation with its log-determinant (Dinh et al. 2017, section 3.7).", "y = gamma (x - mean) / sqrt(var + eps) + beta, log|det| = sum_i log gamma_i - log(var_i + eps) / 2", "D both ways",
             {"plain", {{"features", 3}, {"momentum", 0.5}}});

}  // namespace diffeo
