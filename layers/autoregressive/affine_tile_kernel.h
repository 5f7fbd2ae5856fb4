#pragma once

#include "diffeo/layers/autoregressive/affine_tile_cpu.h"
#include "diffeo/layers/base/lanes.h"

// The arithmetic of the affine map's inverse beside a masked network, once for every instruction set and for CUDA.
namespace diffeo::affine_tile::DIFFEO_CAPABILITY {

using namespace lanes::DIFFEO_CAPABILITY;

/// e^-|x|, NaN of NaN.
template <class V>
DIFFEO_HD V exp_minus_magnitude(V x) {
  return select(x == x, exp_nonpositive(-magnitude(x)), x);
}

/// The scale e^s of a parameter, and s.
template <Scale scale, class V>
DIFFEO_HD void scale_of(V a, Lane<V> cap, V& size, V& s) {
  using T = Lane<V>;
  const V zero = all<V>(0), one = all<V>(1);
  if constexpr (scale == Scale::bounded || scale == Scale::exp) {
    s = scale == Scale::exp ? a : a / (one + magnitude(a / all<V>(cap)));
    const V e = exp_minus_magnitude(s);
    size = select(s > zero, one / e, e);
  } else {
    const V shifted = scale == Scale::sigmoid ? a + T(2) : a, e = exp_minus_magnitude(shifted);
    // LibTorch's softplus is the identity beyond 20.
    size = scale == Scale::sigmoid ? select(shifted < zero, e, one) / (one + e)
                                   : select(a > all<V>(20), a, larger(a, zero) + log1p_unit(e));
    size += T(1e-3);
    s = log_positive(size);
  }
}

}  // namespace diffeo::affine_tile::DIFFEO_CAPABILITY
