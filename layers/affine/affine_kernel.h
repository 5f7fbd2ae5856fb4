#pragma once

#include "diffeo/layers/affine/affine_form.h"
#include "diffeo/layers/base/lanes.h"

// The arithmetic of the affine map, once for every instruction set and for CUDA: y = e^s x + t, s = s(a).
namespace diffeo::affine::DIFFEO_CAPABILITY {

using namespace lanes::DIFFEO_CAPABILITY;

/// What the parameter a makes.
template <class V>
struct Scaled {
  V log;     // s
  V slope;   // ds/da
  V factor;  // e^s, or e^-s for the inverse
  V moves;   // 1 where the factor follows s, 0 where it stays at the largest or smallest number
};

template <bool inverse, class V>
DIFFEO_HD Scaled<V> from_log(V s, V slope) {
  const V bound = all<V>(largest_exponent<Lane<V>>);
  const V exponent = smaller(larger(inverse ? -s : s, -bound), bound);
  return {s, slope, exp_moderate(exponent), select(magnitude(s) > bound, all<V>(0), all<V>(1))};
}

template <Scale scale, bool inverse, class V>
DIFFEO_HD Scaled<V> scaled(V a, Lane<V> cap) {
  using T = Lane<V>;
  const V one = all<V>(1), zero = all<V>(0);
  if constexpr (scale == Scale::bounded) {
    const V shrink = T(1) / (T(1) + magnitude(a / cap));
    return from_log<inverse>(a * shrink, shrink * shrink);
  } else if constexpr (scale == Scale::exp) {
    return from_log<inverse>(a, one);
  } else {
    const V raw = scale == Scale::sigmoid ? a + T(2) : a;
    const V z = exp_nonpositive(-magnitude(raw)), per = T(1) / (T(1) + z);
    const V sigmoid = select(raw >= zero, one, z) * per, rest = select(raw >= zero, z, one) * per;
    const V value = T(least_scale) + (scale == Scale::sigmoid ? sigmoid : larger(raw, zero) + log1p_unit(z));
    const V per_value = T(1) / value;
    return {log_positive(value), (scale == Scale::sigmoid ? sigmoid * rest : sigmoid) * per_value,
            inverse ? per_value : value, one};
  }
}

template <bool inverse, class V>
DIFFEO_HD V map(V given, V factor, V t) {
  return inverse ? (given - t) * factor : given * factor + t;
}

/// Derivatives of the loss by the two parameters.
template <class V>
struct Adjoint {
  V a, t;
};

/// From the derivatives by value, those times x, and those by log_det: of one element, or their sums over a batch. For
/// the inverse, x is what it gave back: x(y, p) with f(x, p) = y, dx/dp = -(df/dp) / f'.
template <bool inverse, class V>
DIFFEO_HD Adjoint<V> map_back(const Scaled<V>& c, V by_value, V by_value_x, V by_log_det) {
  // Where the factor does not move, what it is multiplied by may be infinite.
  const auto still = c.moves == all<V>(0);
  if constexpr (inverse)
    return {-(select(still, all<V>(0), by_value_x) + by_log_det) * c.slope, -by_value * c.factor};
  else
    return {(select(still, all<V>(0), by_value_x * c.factor) + by_log_det) * c.slope, by_value};
}

/// A form and a direction as a type.
template <Scale scale_, bool inverse_>
struct Kind {
  static constexpr Scale scale = scale_;
  static constexpr bool inverse = inverse_;
};

/// Calls `run` with the Kind that a form and a direction are.
template <class Run>
void with_kind(Scale scale, bool inverse, const Run& run) {
  const auto directed = [&](auto forward, auto backward) { inverse ? run(backward) : run(forward); };
  switch (scale) {
    case Scale::bounded:
      return directed(Kind<Scale::bounded, false>(), Kind<Scale::bounded, true>());
    case Scale::exp:
      return directed(Kind<Scale::exp, false>(), Kind<Scale::exp, true>());
    case Scale::sigmoid:
      return directed(Kind<Scale::sigmoid, false>(), Kind<Scale::sigmoid, true>());
    case Scale::softplus:
      return directed(Kind<Scale::softplus, false>(), Kind<Scale::softplus, true>());
  }
}

}  // namespace diffeo::affine::DIFFEO_CAPABILITY
