#pragma once

#include "diffeo/layers/base/lanes.h"
#include "diffeo/layers/rq_spline/rq_spline_shape.h"

// The arithmetic of the spline, once for every instruction set and for CUDA. In one bin, with t the place of x in it:
//
//   t = (x - x0) / w,   t' = 1 - t,   u = t t',   s = h / w
//   N = s t^2 + d0 u,   N' = s t'^2 + d1 u,   D = N + N' = s (1 - 2u) + (d0 + d1) u
//   y = y0 + h N / D = y1 - h N' / D
//   dy/dx = (s / D)^2 M,   M = d1 t^2 + 2 s u + d0 t'^2
//
// (Durkan et al. 2019, eq. 4 and 5, with D written as a sum of positive terms.) No term is a difference of others, so
// nothing cancels. The inverse (eq. 6-8) too is written so that nothing cancels: with r = (y - y0) / h, r' = 1 - r,
//
//   q = d0 r' - d1 r,   m = |q| + sqrt(q^2 + 4 s^2 r r')
//   t = 2 s r / (m + 2 s r)  if q >= 0,   t = m / (m + 2 s r')  otherwise
//
// The discriminant of eq. 8 is the one under this root: a sum of squares, never negative.
namespace diffeo::rq_spline::DIFFEO_CAPABILITY {

using namespace lanes::DIFFEO_CAPABILITY;

/// Where the spline acts and how bin sizes come from their parts p: size = least + spread p.
template <class T>
struct Frame {
  T x_lower, x_upper, y_lower, y_upper;
  T least_width, spread_width, least_height, spread_height;
  T tiny_width, tiny_height;  // a few units in the last place: what a bin has where rounding leaves less
  T min_slope;
  T sharpness;            // 1 / temperature
  bool identity_outside;  // and slope 1 at both ends
  bool circular;          // the ends are one point
};

inline double larger_end(double lower, double upper) { return -lower > upper ? -lower : upper; }

template <class T>
Frame<T> frame_of(const Shape& shape) {
  const double width = shape.x_upper - shape.x_lower, height = shape.y_upper - shape.y_lower;
  const double bins = static_cast<double>(shape.bins);
  const double epsilon = sizeof(T) == 4 ? 0x1p-23 : 0x1p-52;
  Frame<T> frame;
  frame.x_lower = static_cast<T>(shape.x_lower);
  frame.x_upper = static_cast<T>(shape.x_upper);
  frame.y_lower = static_cast<T>(shape.y_lower);
  frame.y_upper = static_cast<T>(shape.y_upper);
  frame.least_width = static_cast<T>(width * shape.min_width);
  frame.spread_width = static_cast<T>(width * (1 - bins * shape.min_width));
  frame.least_height = static_cast<T>(height * shape.min_height);
  frame.spread_height = static_cast<T>(height * (1 - bins * shape.min_height));
  frame.tiny_width = static_cast<T>(4 * epsilon * larger_end(shape.x_lower, shape.x_upper));
  frame.tiny_height = static_cast<T>(4 * epsilon * larger_end(shape.y_lower, shape.y_upper));
  frame.min_slope = static_cast<T>(shape.min_slope);
  frame.sharpness = static_cast<T>(1 / shape.temperature);
  frame.identity_outside = shape.tails == Tails::linear;
  frame.circular = shape.tails == Tails::circular;
  return frame;
}

/// The bin that a point lies in.
template <class V>
struct Bin {
  V x0, x1, y0, y1;
  V raw0, raw1;  // raw slopes at its ends
  V index;
};

/// Looks for the bin of `point` along y (inverse) or x. Source gives, for uniform k, width(k) and height(k), k < bins,
/// and slope(k), k <= bins, a raw parameter (any number at an end where the slope is 1).
template <bool along_y, class V, class Source>
DIFFEO_HD Bin<V> find(const Source& source, V point, const Frame<Lane<V>>& frame, int bins) {
  using T = Lane<V>;
  V x = frame.x_lower + source.width(0), y = frame.y_lower + source.height(0);
  Bin<V> bin{all<V>(frame.x_lower), x, all<V>(frame.y_lower), y, source.slope(0), source.slope(1), all<V>(0)};
  for (int k = 1; k < bins; ++k) {
    const V x_next = x + source.width(k), y_next = y + source.height(k);
    const auto beyond = point >= (along_y ? y : x);
    bin.x0 = select(beyond, x, bin.x0);
    bin.x1 = select(beyond, x_next, bin.x1);
    bin.y0 = select(beyond, y, bin.y0);
    bin.y1 = select(beyond, y_next, bin.y1);
    bin.raw0 = select(beyond, source.slope(k), bin.raw0);
    bin.raw1 = select(beyond, source.slope(k + 1), bin.raw1);
    bin.index = select(beyond, all<V>(T(k)), bin.index);
    x = x_next;
    y = y_next;
  }
  // The last knot is the end itself, not what a sum of rounded sizes makes of it; NaN stays.
  const auto last = bin.index == all<V>(T(bins - 1));
  bin.x1 = select(last, frame.x_upper + (x - x), bin.x1);
  bin.y1 = select(last, frame.y_upper + (y - y), bin.y1);
  bin.x1 = larger(bin.x1, bin.x0 + frame.tiny_width);
  bin.y1 = larger(bin.y1, bin.y0 + frame.tiny_height);
  return bin;
}

/// What a bin makes of its parameters.
template <class V>
struct Curve {
  V w, h, per_w, s, d0, d1;
};

template <class V>
DIFFEO_HD V softplus(V raw) {
  return larger(raw, all<V>(0)) + log1p_unit(exp_nonpositive(-magnitude(raw)));
}

template <class V>
DIFFEO_HD Curve<V> curve_of(const Bin<V>& bin, const Frame<Lane<V>>& frame, int bins) {
  using T = Lane<V>;
  Curve<V> c;
  c.w = bin.x1 - bin.x0;
  c.h = bin.y1 - bin.y0;
  c.per_w = T(1) / c.w;
  c.s = c.h * c.per_w;
  c.d0 = frame.min_slope + softplus(bin.raw0);
  c.d1 = frame.min_slope + softplus(bin.raw1);
  if (frame.identity_outside) {
    c.d0 = select(bin.index == all<V>(0), all<V>(1), c.d0);
    c.d1 = select(bin.index == all<V>(T(bins - 1)), all<V>(1), c.d1);
  }
  return c;
}

/// A point of the curve and its neighbourhood.
template <class V>
struct Place {
  V t, rest, u;           // t, t', u
  V n, n_rest, per_d, m;  // N, N', 1 / D, M
};

/// v in [0, 1]: where rounding has eaten a bin, a point may lie beside it. NaN stays NaN.
template <class V>
DIFFEO_HD V unit(V v) {
  return smaller(larger(v, all<V>(0)), all<V>(1));
}

template <class V>
DIFFEO_HD Place<V> place_of(V x, const Bin<V>& bin, const Curve<V>& c) {
  using T = Lane<V>;
  Place<V> p;
  p.t = unit<V>((x - bin.x0) * c.per_w);
  p.rest = unit<V>((bin.x1 - x) * c.per_w);
  p.u = p.t * p.rest;
  p.n = c.s * p.t * p.t + c.d0 * p.u;
  p.n_rest = c.s * p.rest * p.rest + c.d1 * p.u;
  p.per_d = T(1) / (p.n + p.n_rest);
  p.m = c.d1 * p.t * p.t + T(2) * c.s * p.u + c.d0 * p.rest * p.rest;
  return p;
}

template <class V>
struct Point {
  V value, log_slope;
};

/// The point of [lower, upper] that x stands for: brought back by whole turns if the ends are one point, else the
/// nearest. This comes before the arithmetic: what is outside cannot make a NaN in a branch that is not taken.
template <class V>
DIFFEO_HD V within(V x, Lane<V> lower, Lane<V> upper, bool circular) {
  using T = Lane<V>;
  if (circular) {
    constexpr T to_integer = sizeof(T) == 4 ? T(12582912) : T(6755399441055744);  // 1.5 * 2^23, 1.5 * 2^52
    const T turn = upper - lower, middle = T(0.5) * (lower + upper);
    const V turns = ((x - middle) / turn + to_integer) - to_integer, turned = x - turns * turn;
    x = select(x < all<V>(lower), turned, select(x > all<V>(upper), turned, x));
  }
  return smaller(larger(x, all<V>(lower)), all<V>(upper));
}

/// The spline at one point, or its inverse with the log slope of the inverse.
template <bool inverse, class V, class Source>
DIFFEO_HD Point<V> map(const Source& source, V given, const Frame<Lane<V>>& frame, int bins) {
  using T = Lane<V>;
  const T lower = inverse ? frame.y_lower : frame.x_lower, upper = inverse ? frame.y_upper : frame.x_upper;
  const V point = within(given, lower, upper, frame.circular);
  const auto bin = find<inverse>(source, point, frame, bins);
  const auto c = curve_of(bin, frame, bins);
  V x = point;
  if constexpr (inverse) {
    const V per_h = T(1) / c.h, r = unit<V>((point - bin.y0) * per_h), r_rest = unit<V>((bin.y1 - point) * per_h);
    const V q = c.d0 * r_rest - c.d1 * r, a = T(2) * c.s * r, b = T(2) * c.s * r_rest;
    const V m = magnitude(q) + square_root(q * q + a * b);
    const auto rising = q >= all<V>(0);
    const V per = c.w / (m + select(rising, a, b));
    // Both t w and t' w, to start from the nearer end.
    const V from_lower = select(rising, a, m) * per, from_upper = select(rising, m, b) * per;
    x = select(from_lower <= from_upper, bin.x0 + from_lower, bin.x1 - from_upper);
    x = within(x, frame.x_lower, frame.x_upper, false);
  }
  // The log slope belongs to the x that is given back, with all its rounding.
  const auto p = place_of(x, bin, c);
  const V ratio = c.s * p.per_d;
  const V log_slope = log_positive(ratio * ratio * p.m);
  V value = x;
  if constexpr (!inverse) {
    const V scale = c.h * p.per_d;
    value = select(p.t <= p.rest, bin.y0 + scale * p.n, bin.y1 - scale * p.n_rest);
    value = within(value, frame.y_lower, frame.y_upper, false);
  }
  if (!frame.identity_outside) return {value, inverse ? -log_slope : log_slope};
  const auto below = given<all<V>(lower), above = given> all<V>(upper);
  return {select(below, given, select(above, given, value)),
          select(below, all<V>(0), select(above, all<V>(0), inverse ? -log_slope : log_slope))};
}

/// Derivatives of the loss: with respect to the point, the knots and the raw slopes of its bin.
template <class V>
struct Adjoint {
  V given;
  V x0, x1, y0, y1, raw0, raw1;
  V index;
};

template <class V>
DIFFEO_HD V sigmoid(V raw) {
  using T = Lane<V>;
  const V z = exp_nonpositive(-magnitude(raw));
  return select(raw >= all<V>(0), all<V>(1), z) / (T(1) + z);
}

/// The backward pass at one point, from the derivatives of the loss by value and log slope. Of the inverse, x is what
/// it gave back: by x(y, p) with f(x, p) = y, its derivatives are dx/dy = 1 / f' and dx/dp = -(df/dp) / f', and its log
/// slope is that of f, negative.
template <bool inverse, class V, class Source>
DIFFEO_HD Adjoint<V> map_back(const Source& source, V x_given, V by_value, V by_log_slope, const Frame<Lane<V>>& frame,
                              int bins) {
  using T = Lane<V>;
  const V x = within(x_given, frame.x_lower, frame.x_upper, frame.circular);
  const auto bin = find<false>(source, x, frame, bins);
  const auto c = curve_of(bin, frame, bins);
  const auto p = place_of(x, bin, c);
  const V per_m = T(1) / p.m, ratio = c.s * p.per_d, slope = ratio * ratio * p.m;
  // d log f' / dt; its terms are derivatives of M and of D.
  const V curl = c.d0 + c.d1 - T(2) * c.s;
  const V log_by_t =
      T(2) * ((c.d1 * p.t - c.d0 * p.rest + c.s * (p.rest - p.t)) * per_m - curl * (p.rest - p.t) * p.per_d);

  V outside = all<V>(0);  // what a point outside hands back
  V gy = by_value, gl = by_log_slope;
  if (frame.identity_outside) {
    const auto below = x_given<all<V>(frame.x_lower), above = x_given> all<V>(frame.x_upper);
    outside = select(below, gy, select(above, gy, outside));
    gy = select(below, all<V>(0), select(above, all<V>(0), gy));
    gl = select(below, all<V>(0), select(above, all<V>(0), gl));
  }
  V given;
  if constexpr (inverse) {
    gl = -gl;
    given = (gy + gl * log_by_t * c.per_w) / slope;
    gy = -given;
  } else {
    given = gy * slope + gl * log_by_t * c.per_w;
  }
  Adjoint<V> g;
  g.given = given + outside;
  g.index = bin.index;
  const V hd = gy * c.h * p.per_d;  // of N / D
  const V along = hd * p.u * p.per_d;
  const V t2 = p.t * p.t, rest2 = p.rest * p.rest, u2d = T(2) * p.u * p.per_d;
  const V by_d0 = along * p.n_rest + gl * (rest2 * per_m - u2d);
  const V by_d1 = gl * (t2 * per_m - u2d) - along * p.n;
  const V by_s =
      along * (c.d1 * t2 - c.d0 * rest2) + gl * T(2) * (T(1) / c.s + p.u * per_m - (T(1) - T(2) * p.u) * p.per_d);
  const V by_t = hd * ratio * p.m + gl * log_by_t;
  const V by_h = by_s * c.per_w;
  g.y1 = gy * p.n * p.per_d + by_h;
  g.y0 = gy * p.n_rest * p.per_d - by_h;
  g.x1 = -(by_s * c.s + by_t * p.t) * c.per_w;
  g.x0 = (by_s * c.s - by_t * p.rest) * c.per_w;
  g.raw0 = by_d0 * sigmoid(bin.raw0);
  g.raw1 = by_d1 * sigmoid(bin.raw1);
  const auto last = bin.index == all<V>(T(bins - 1));
  g.x1 = select(last, all<V>(0), g.x1);  // the last knot does not move
  g.y1 = select(last, all<V>(0), g.y1);
  if (frame.identity_outside) {
    g.raw0 = select(bin.index == all<V>(0), all<V>(0), g.raw0);
    g.raw1 = select(last, all<V>(0), g.raw1);
  }
  return g;
}

/// Derivative by the size of bin k: sizes before the bin move both of its knots, its own size moves the upper one.
template <class V>
DIFFEO_HD V by_size(V index, V lower_knot, V upper_knot, int k) {
  const V at = all<V>(Lane<V>(k));
  return select(index > at, lower_knot + upper_knot, select(index == at, upper_knot, all<V>(0)));
}

/// Derivative by the raw slope at knot k.
template <class V>
DIFFEO_HD V by_slope(const Adjoint<V>& g, int k) {
  const V at = all<V>(Lane<V>(k)), zero = all<V>(0);
  return select(g.index == at, g.raw0, zero) + select(g.index + Lane<V>(1) == at, g.raw1, zero);
}

}  // namespace diffeo::rq_spline::DIFFEO_CAPABILITY
