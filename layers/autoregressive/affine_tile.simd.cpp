// The inverse of the affine map for a tile of rows. Compiled once for each instruction set.
#include "diffeo/layers/autoregressive/affine_tile_cpu.h"
#include "diffeo/layers/base/lanes.h"

namespace diffeo::affine_tile::DIFFEO_CAPABILITY {
using namespace lanes::DIFFEO_CAPABILITY;
namespace {

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

template <Scale scale, class T>
void each(T cap, const T* y, const T* parameters, T* x, T* log_det) {
  using V = Pack<T>;
  for (int64_t i = 0; i < made::tile_rows; i += pack_size<T>) {
    V size, s;
    scale_of<scale>(load<V>(parameters + i), cap, size, s);
    store(x + i, (load<V>(y + i) - load<V>(parameters + made::tile_rows + i)) / size);
    store(log_det + i, load<V>(log_det + i) - s);
  }
}

template <class T>
void solve(Scale scale, T cap, const T* y, const T* parameters, T* x, T* log_det) {
  switch (scale) {
    case Scale::bounded:
      return each<Scale::bounded>(cap, y, parameters, x, log_det);
    case Scale::exp:
      return each<Scale::exp>(cap, y, parameters, x, log_det);
    case Scale::sigmoid:
      return each<Scale::sigmoid>(cap, y, parameters, x, log_det);
    case Scale::softplus:
      return each<Scale::softplus>(cap, y, parameters, x, log_det);
  }
}

}  // namespace

Kernel<float> kernel(float) { return solve<float>; }
Kernel<double> kernel(double) { return solve<double>; }

}  // namespace diffeo::affine_tile::DIFFEO_CAPABILITY
