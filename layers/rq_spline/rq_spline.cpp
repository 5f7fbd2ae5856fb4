#include "diffeo/layers/rq_spline/rq_spline.h"

#include <cmath>
#include <numbers>

#include "diffeo/layers/base/inside.h"
#include "diffeo/layers/base/ranges.h"
#include "diffeo/layers/base/registry.h"
#include "diffeo/layers/rq_spline/rq_spline_op.h"

namespace diffeo {
namespace {

Axis ends_of(const std::vector<double>& given, const RqSpline::Options& options) {
  if (options.tails == "circular") return {-std::numbers::pi, std::numbers::pi, true};
  return given.empty() ? Axis{-options.bound, options.bound} : Axis{given[0], given[1]};
}

rq_spline::Shape shape_of(const RqSpline::Options& options) {
  const auto x = ends_of(options.domain, options);
  const auto y = ends_of(options.codomain.empty() ? options.domain : options.codomain, options);
  const auto tails = options.tails == "linear" ? rq_spline::Tails::linear
                     : options.tails == "none" ? rq_spline::Tails::none
                                               : rq_spline::Tails::circular;
  return {options.bins,      tails,
          x.lower,           x.upper,
          y.lower,           y.upper,
          options.min_width, options.min_height,
          options.min_slope, options.temperature};
}

void check_interval(const char* name, const std::vector<double>& interval, const std::string& tails) {
  if (interval.empty()) return;
  if (tails != "none") throw SpecError(name, c10::str("is only for tails none, not ", tails, "; use bound"));
  if (interval.size() != 2 || !(interval[0] < interval[1]))
    throw SpecError(name, c10::str("expected [lower, upper] with lower < upper, got ", Json(interval).dump()));
}

/// Points of a bounded domain may miss it by rounding only.
void check_inside(const Tensor& x, const Axis& axis) {
  const double slack =
      (x.scalar_type() == at::kDouble ? 1e-14 : 1e-6) * std::max(std::abs(axis.lower), std::abs(axis.upper));
  const auto outside = (x >= axis.lower - slack).logical_and(x <= axis.upper + slack).logical_not();
  if (!outside.any().item<bool>()) return;
  const auto [row, feature] = first_of(outside);
  throw Error(c10::str("rq_spline: point ", x.reshape({-1, x.size(-1)})[row][feature].item<double>(), " at row ", row,
                       ", feature ", feature, " lies outside of ", to_string(axis),
                       "; set domain wider or use tails linear"));
}

}  // namespace

RqSpline::RqSpline(const Options& options) : options_(options) {
  check_choice("tails", options.tails, {"linear", "none", "circular"});
  if (options.bins < 1) throw SpecError("bins", c10::str("must be at least 1, got ", options.bins));
  above_zero("bound", options.bound);
  check_interval("domain", options.domain, options.tails);
  check_interval("codomain", options.codomain, options.tails);
  const auto floor = [&](const char* name, double value) {
    if (!(value > 0) || value * static_cast<double>(options.bins) >= 1)
      throw SpecError(name, c10::str("must be above 0 and below 1 / bins, got ", value));
  };
  floor("min_width", options.min_width);
  floor("min_height", options.min_height);
  if (!(options.min_slope > 0 && options.min_slope < 1))
    throw SpecError("min_slope", c10::str("must be in (0, 1), got ", options.min_slope));
  above_zero("temperature", options.temperature);
}

int64_t RqSpline::parameters() const { return shape_of(options_).parameters(); }

std::vector<double> RqSpline::identity() const {
  const auto shape = shape_of(options_);
  const double slope = (shape.y_upper - shape.y_lower) / (shape.x_upper - shape.x_lower);
  std::vector<double> all(shape.parameters(), 0.0);
  const double excess = std::max(slope - options_.min_slope, 1e-6);
  std::fill(all.begin() + 2 * options_.bins, all.end(), std::log(std::expm1(excess)));
  return all;
}

Axis RqSpline::domain() const { return options_.tails == "linear" ? Axis{} : ends_of(options_.domain, options_); }

Axis RqSpline::codomain() const {
  if (options_.tails == "linear") return {};
  return ends_of(options_.codomain.empty() ? options_.domain : options_.codomain, options_);
}

Mapped RqSpline::forward(const Tensor& x, const Tensor& parameters) const {
  if (options_.tails == "none") check_inside(x, domain());
  const auto [value, log_det] = rq_spline::apply(x, parameters, shape_of(options_), false);
  return {value, log_det};
}

Mapped RqSpline::inverse(const Tensor& y, const Tensor& parameters) const {
  if (options_.tails == "none") check_inside(y, codomain());
  const auto [value, log_det] = rq_spline::apply(y, parameters, shape_of(options_), true);
  return {value, log_det};
}

bool RqSpline::has_gradients(const Tensor& points) const { return rq_spline::has_kernel(points); }

MapGradients RqSpline::gradients(const Tensor& points, const Tensor& parameters, const Tensor& value,
                                 const Tensor& by_value, const Tensor& by_log_det, bool inverse) const {
  const auto [by_points, by_parameters] =
      rq_spline::gradients(points, parameters, value, by_value, by_log_det, shape_of(options_), inverse);
  return {by_points, by_parameters};
}

DIFFEO_UNIVARIATE(rq_spline, RqSpline, "Rational-quadratic spline (Durkan et al. 2019).", "y = y_k + (y_k+1 - y_k) (s u^2 + d_k u (1 - u)) / (s + (d_k+1 + d_k - 2 s) u (1 - u)), u = (x - x_k) / (x_k+1 - x_k), s the slope of the bin, d the slopes at its ends",
    {"linear", {{"bins", 5}}},
    {"one_bin", {{"bins", 1}, {"tails", "none"}}},
    {"bounded", {{"bins", 4}, {"tails", "none"}, {"domain", {0.0, 1.0}}}},
    {"lopsided", {{"bins", 4}, {"tails", "none"}, {"domain", {-3.0, 3.0}}, {"codomain", {-1.0, 2.0}}}},
    {"circular", {{"bins", 5}, {"tails", "circular"}}},
    {"tempered", {{"bins", 4}, {"temperature", 5.0}}});

}  // namespace diffeo
