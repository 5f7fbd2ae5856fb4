#include "diffeo/layers/sigmoid/sigmoid.h"

#include <ATen/ops/log1p.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>

#include <cmath>

#include "diffeo/layers/base/inside.h"
#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

const Interval& checked(const Interval& interval) {
  if (!std::isfinite(interval.lower)) throw SpecError("lower", c10::str("must be finite, got ", interval.lower));
  if (!std::isfinite(interval.upper) || !(interval.upper > interval.lower))
    throw SpecError("upper", c10::str("must be finite and above lower (", interval.lower, "), got ", interval.upper));
  return interval;
}

/// Sum over features of log sigmoid'(x), exact where sigmoid(x) itself rounds to 0 or 1.
Tensor log_slope(const Tensor& x) { return (at::log_sigmoid(x) + at::log_sigmoid(-x)).sum(-1); }

Mapped squashed(const Tensor& x, const Interval& to) {
  const double width = to.upper - to.lower;
  return {to.lower + width * at::sigmoid(x), log_slope(x) + static_cast<double>(x.size(-1)) * std::log(width)};
}

Mapped unsquashed(const char* who, const Tensor& y, const Interval& from) {
  // Logarithms of the distances to both ends: each is exact near its own end.
  const auto point = inside(who, y, {from.lower, from.upper});
  const auto low = (point - from.lower).log(), high = (from.upper - point).log();
  return {low - high, (std::log(from.upper - from.lower) - low - high).sum(-1)};
}

}  // namespace

Sigmoid::Sigmoid(const Options& options) : interval_(checked(options)) {}

Mapped Sigmoid::forward(const Tensor& x, const Tensor&) const { return squashed(x, interval_); }

Mapped Sigmoid::inverse(const Tensor& y, const Tensor&) const { return unsquashed("sigmoid", y, interval_); }

Logit::Logit(const Options& options) : interval_(checked(options)) {}

Mapped Logit::forward(const Tensor& x, const Tensor&) const { return unsquashed("logit", x, interval_); }

Mapped Logit::inverse(const Tensor& y, const Tensor&) const { return squashed(y, interval_); }

Mapped Tanh::forward(const Tensor& x, const Tensor&) const {
  // 1 - tanh^2 x = 4 sigmoid(2x) sigmoid(-2x)
  return {at::tanh(x), log_slope(2 * x) + static_cast<double>(x.size(-1)) * std::log(4.0)};
}

Mapped Tanh::inverse(const Tensor& y, const Tensor&) const {
  const auto point = inside("tanh", y, codomain());
  const auto high = at::log1p(point), low = at::log1p(-point);
  return {0.5 * (high - low), -(high + low).sum(-1)};
}

DIFFEO_UNIVARIATE(sigmoid, Sigmoid, "From the line to an interval by the logistic function.", "y = a + (b - a) / (1 + e^-x), log y' = log(b - a) - log(1 + e^-x) - log(1 + e^x)", {"unit", Json::object()},
                  {"interval", {{"lower", -2.0}, {"upper", 5.0}}});

DIFFEO_UNIVARIATE(logit, Logit, "From an interval to the line, the inverse of sigmoid.", "y = log(x - a) - log(b - x), log y' = log(b - a) - log(x - a) - log(b - x)", {"unit", Json::object()},
                  {"interval", {{"lower", -2.0}, {"upper", 5.0}}});

DIFFEO_UNIVARIATE(tanh, Tanh, "From the line to (-1, 1) by the hyperbolic tangent.", "y = tanh x, log y' = 2 (log 2 - x - log(1 + e^-2x))", {"plain", Json::object()});

}  // namespace diffeo
