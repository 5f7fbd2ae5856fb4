#include "diffeo/layers/normalization/actnorm.h"

#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

constexpr double largest_log_scale = 40;  // e^40 squared is still a float32
/// Deviations below this part of the mean are rounding: the column is constant.
constexpr double least_relative_deviation = 1e-6;

Tensor bounded(const Tensor& log_scale) { return log_scale.clamp(-largest_log_scale, largest_log_scale); }

}  // namespace

ActNorm::ActNorm(const Options& options)
    : Layer(Space::reals(at_least(1, "features", options.features))),
      options_(options),
      map_(build_univariate({{"type", "affine"}, {"scale", "exp"}})) {
  log_scale_ = register_parameter("log_scale", at::zeros({options.features}));
  shift_ = register_parameter("shift", at::zeros({options.features}));
  initialised_ = register_buffer("initialised", at::zeros({}, at::kLong));
}

Tensor ActNorm::map_parameters() const { return at::stack({bounded(log_scale_), shift_}, -1); }

bool ActNorm::initialised() {
  // Asked once: reading the buffer would make every step wait for the GPU.
  if (!seen_initialised_) seen_initialised_ = initialised_.item<int64_t>() != 0;
  return seen_initialised_;
}

void ActNorm::initialise(const Tensor& x) {
  torch::NoGradGuard no_grad;
  const auto rows = x.reshape({-1, options_.features});
  if (rows.size(0) < 2 || !rows.isfinite().all().item<bool>()) return;
  const auto mean = rows.mean(0), deviation = rows.std(0, /*unbiased=*/false);
  const auto varies = deviation > least_relative_deviation * mean.abs();
  const auto log_scale = at::where(varies, -deviation.clamp_min(1e-30).log(), 0.0);
  log_scale_.copy_(bounded(log_scale));
  shift_.copy_(-mean * log_scale_.exp());
  initialised_.fill_(1);
}

Mapped ActNorm::map(const Tensor& x, const Tensor&) {
  if (is_training() && !initialised()) initialise(x);
  return map_->forward(x, map_parameters());
}

Mapped ActNorm::unmap(const Tensor& y, const Tensor&) { return map_->inverse(y, map_parameters()); }

Scored ActNorm::carry_score(const Tensor& points, const Tensor& score, const Tensor& context, Direction direction) {
  const bool forward = direction == Direction::forward;
  const auto [value, log_det] = forward ? map(points, context) : unmap(points, context);
  const auto log_scale = bounded(log_scale_.detach());
  return {value, log_det, score * (forward ? -log_scale : log_scale).exp()};
}

DIFFEO_LAYER(actnorm, ActNorm, "Scale and shift per feature, started from the first batch (Kingma and Dhariwal 2018).", "y = e^s x + t, log|det| = sum_i s_i", "D both ways",
             {"plain", {{"features", 3}}});

}  // namespace diffeo
