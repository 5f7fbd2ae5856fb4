#include "diffeo/layers/injective/conformal.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

/// Denominators of special conformal maps stay above this: a point without an image goes far out instead.
constexpr double least_denominator = 1e-6;

int64_t reflections_of(const Conformal::Options& options) {
  const auto given = at_least(0, "reflections", options.reflections);
  if (given % 2 != 0) throw SpecError("reflections", c10::str("must be even, got ", given));
  const auto enough = options.latent + options.latent % 2;
  return given > 0 ? given : enough;
}

Tensor row_dot(const Tensor& a, const Tensor& b) { return (a * b).sum(-1, true); }

/// x reflected at the planes across the unit vectors (K, D), the first one first, or the last one first.
Tensor reflected(Tensor x, const Tensor& units, bool backwards) {
  for (int64_t i = 0; i < units.size(0); ++i) {
    const auto v = units[backwards ? units.size(0) - 1 - i : i];
    x = x - 2 * row_dot(x, v) * v;
  }
  return x;
}

/// 1 - 2 b.y + |b|^2 |y|^2, (*batch, 1).
Tensor denominator(const Tensor& y, const Tensor& b) {
  return (1 - 2 * row_dot(y, b) + row_dot(b, b) * row_dot(y, y)).clamp_min(least_denominator);
}

/// The special conformal map; its inverse is that of -b.
Tensor bent(const Tensor& y, const Tensor& b) { return (y - b * row_dot(y, y)) / denominator(y, b); }

/// Its Jacobian at y times tangents.
Tensor bent_tangents(const Tensor& y, const Tensor& b, const Tensor& t) {
  const auto q = denominator(y, b);
  const auto along = row_dot(y, t);
  return (t - 2 * b * along) / q - (y - b * row_dot(y, y)) * (2 * (row_dot(b, b) * along - row_dot(b, t))) / q.square();
}

}  // namespace

Conformal::Conformal(const Options& options)
    : InjectiveLayer(at_least(2, "features", options.features), checked_latent(options.latent, options.features)),
      options_(options),
      reflections_(reflections_of(options)) {
  const auto blocks = at_least(1, "blocks", options.blocks);
  // Two reflections by the same vector undo each other: it starts at the padding alone.
  const auto pairs = at::randn({blocks, reflections_ / 2, options.features}).repeat_interleave(2, 1);
  vectors_ = register_parameter("vectors", pairs.clone());
  log_scale_ = register_parameter("log_scale", at::zeros({blocks}));
  shift_ = register_parameter("shift", at::zeros({blocks, options.features}));
  bend_ = register_parameter("bend", at::zeros({blocks, options.features}));
}

Tensor Conformal::forward_value(const Tensor& x, const Tensor&) {
  const auto units = vectors_ / vectors_.norm(2, -1, true).clamp_min(1e-12);
  auto y = x;
  for (int64_t i = options_.blocks; i-- > 0;) {
    y = (bent(y, -bend_[i]) - shift_[i]) * (-log_scale_[i]).exp();
    y = reflected(y, units[i], true);
  }
  return y.narrow(-1, 0, options_.latent);
}

Mapped Conformal::unmap(const Tensor& y, const Tensor&) {
  const auto units = vectors_ / vectors_.norm(2, -1, true).clamp_min(1e-12);
  auto x = at::constant_pad_nd(y, {0, options_.features - options_.latent});
  auto log_factor = x.new_zeros(x.sizes().slice(0, x.dim() - 1));
  for (int64_t i = 0; i < options_.blocks; ++i) {
    x = reflected(x, units[i], false) * log_scale_[i].exp() + shift_[i];
    log_factor = log_factor + log_scale_[i] - denominator(x, bend_[i]).squeeze(-1).log();
    x = bent(x, bend_[i]);
  }
  return {x, static_cast<double>(options_.latent) * log_factor};
}

Mapped Conformal::map(const Tensor& x, const Tensor& context) {
  const auto z = forward_value(x, context);
  return {z, -unmap(z, context).log_det};
}

Tensor Conformal::inverse_value(const Tensor& y, const Tensor& context) { return unmap(y, context).value; }

Pushed Conformal::push_forward(const Tensor& x, const Tensor& tangents, const Tensor&) {
  const auto units = vectors_ / vectors_.norm(2, -1, true).clamp_min(1e-12);
  Tensor y = x, t = tangents;
  for (int64_t i = options_.blocks; i-- > 0;) {
    const auto scale = (-log_scale_[i]).exp();
    t = reflected(bent_tangents(y, -bend_[i], t) * scale, units[i], true);
    y = reflected((bent(y, -bend_[i]) - shift_[i]) * scale, units[i], true);
  }
  return {y.narrow(-1, 0, options_.latent), t.narrow(-1, 0, options_.latent)};
}

Pushed Conformal::push_inverse(const Tensor& y, const Tensor& tangents, const Tensor&) {
  const auto units = vectors_ / vectors_.norm(2, -1, true).clamp_min(1e-12);
  const std::vector<int64_t> padding{0, options_.features - options_.latent};
  auto x = at::constant_pad_nd(y, padding), t = at::constant_pad_nd(tangents, padding);
  for (int64_t i = 0; i < options_.blocks; ++i) {
    const auto scale = log_scale_[i].exp();
    x = reflected(x, units[i], false) * scale + shift_[i];
    t = bent_tangents(x, bend_[i], reflected(t, units[i], false) * scale);
    x = bent(x, bend_[i]);
  }
  return {x, t};
}

DIFFEO_LAYER(conformal, Conformal,
             "Conformal embedding: padding, rotations, scales, shifts and special conformal maps (Ross and Cresswell "
             "2021).",
             "x = block_B(... block_1((z, 0))), block(u) = (y - |y|^2 b) / q, y = e^a Q u + c, q = 1 - 2 b.y + |b|^2 "
             "|y|^2; log_det = -d sum_blocks (a - log q)",
             "forward and inverse: blocks K D", {"surface", {{"features", 3}, {"latent", 2}}},
             {"curve", {{"features", 3}, {"latent", 1}, {"blocks", 1}}},
             {"reflections", {{"features", 4}, {"latent", 2}, {"blocks", 1}, {"reflections", 4}}});

}  // namespace diffeo
