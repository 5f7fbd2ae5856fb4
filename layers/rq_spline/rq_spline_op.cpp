#include "diffeo/layers/rq_spline/rq_spline_op.h"

#include <ATen/ATen.h>

#include <cmath>

namespace diffeo::rq_spline {
namespace {

using at::Tensor;

/// Bin sizes from raw parameters (..., K): positive, and their sum is `length`.
Tensor sizes_of(const Tensor& raw, double least, double length) {
  const auto bins = static_cast<double>(raw.size(-1));
  return length * (least + (1 - least * bins) * raw.softmax(-1));
}

/// The K + 1 knots, the last one exactly at lower + length.
Tensor knots_of(const Tensor& sizes, double lower, double upper) {
  const auto inner = lower + sizes.cumsum(-1).narrow(-1, 0, sizes.size(-1) - 1);
  const auto end = at::full_like(sizes.narrow(-1, 0, 1), lower);
  return at::cat({end, inner, at::full_like(end, upper)}, -1);
}

/// The K + 1 slopes at the knots.
Tensor slopes_of(const Tensor& raw, const Shape& shape) {
  const auto slopes = shape.min_slope + at::softplus(raw);
  if (shape.tails == Tails::none) return slopes;
  if (shape.tails == Tails::circular) return at::cat({slopes, slopes.narrow(-1, 0, 1)}, -1);
  auto ends = slopes.sizes().vec();
  ends.back() = 1;
  const auto one = at::ones(ends, slopes.options());
  return at::cat({one, slopes, one}, -1);
}

Tensor pick(const Tensor& values, const Tensor& bin) { return values.gather(-1, bin).squeeze(-1); }

}  // namespace

int64_t Shape::parameters() const {
  return 3 * bins + (tails == Tails::linear ? -1 : tails == Tails::none ? 1 : 0);
}

std::tuple<Tensor, Tensor> reference(const Tensor& x, const Tensor& parameters, const Shape& shape, bool inverse) {
  const auto K = shape.bins;
  auto full = x.sizes().vec();
  full.push_back(parameters.size(-1));
  const auto raw = parameters.expand(full);
  const auto widths = sizes_of(raw.narrow(-1, 0, K), shape.min_width, shape.x_upper - shape.x_lower);
  const auto heights = sizes_of(raw.narrow(-1, K, K), shape.min_height, shape.y_upper - shape.y_lower);
  const auto slopes = slopes_of(raw.narrow(-1, 2 * K, raw.size(-1) - 2 * K), shape);
  const auto x_knots = knots_of(widths, shape.x_lower, shape.x_upper);
  const auto y_knots = knots_of(heights, shape.y_lower, shape.y_upper);

  const double lower = inverse ? shape.y_lower : shape.x_lower, upper = inverse ? shape.y_upper : shape.x_upper;
  // Clamped before the arithmetic, so that points beyond the ends cannot make a NaN in a branch not taken.
  const auto point = x.clamp(lower, upper);
  const auto inner = (inverse ? y_knots : x_knots).narrow(-1, 1, K - 1);
  const auto bin = (point.unsqueeze(-1) >= inner.detach()).sum(-1, true);

  const auto x0 = pick(x_knots, bin), y0 = pick(y_knots, bin);
  const auto w = pick(x_knots, bin + 1) - x0, h = pick(y_knots, bin + 1) - y0;
  const auto d0 = pick(slopes, bin), d1 = pick(slopes, bin + 1);
  const auto s = h / w, curve = d0 + d1 - 2 * s;

  Tensor t;  // the place inside the bin, in [0, 1]
  if (inverse) {
    const auto rise = point - y0;
    const auto a = h * (s - d0) + rise * curve, b = h * d0 - rise * curve, c = -s * rise;
    const auto discriminant = (b.square() - 4 * a * c).clamp_min(0);
    t = (2 * c / (-b - discriminant.sqrt())).clamp(0, 1);
  } else {
    t = ((point - x0) / w).clamp(0, 1);
  }
  const auto u = t * (1 - t), bend = s + curve * u;
  const auto log_slope = 2 * s.log() + (d1 * t.square() + 2 * s * u + d0 * (1 - t).square()).log() - 2 * bend.log();
  auto value = inverse ? x0 + t * w : y0 + h * (s * t.square() + d0 * u) / bend;
  auto log_det = inverse ? -log_slope : log_slope;
  if (shape.tails == Tails::linear) {
    const auto inside = (x >= lower).logical_and(x <= upper);
    value = at::where(inside, value, x);
    log_det = at::where(inside, log_det, at::zeros_like(log_det));
  }
  return {value, log_det.sum(-1)};
}

std::tuple<Tensor, Tensor> apply(const Tensor& x, const Tensor& parameters, const Shape& shape, bool inverse) {
  return reference(x, parameters, shape, inverse);
}

}  // namespace diffeo::rq_spline
