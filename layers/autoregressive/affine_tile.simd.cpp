// The inverse of the affine map for a tile of rows. Compiled once for each instruction set.
#include "diffeo/layers/autoregressive/affine_tile_kernel.h"

namespace diffeo::affine_tile::DIFFEO_CAPABILITY {
namespace {

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
