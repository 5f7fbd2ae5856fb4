#pragma once

#include "diffeo/layers/nets/made_inverse_cpu.h"

namespace diffeo::affine_tile {

/// How the affine map makes its scale e^s of a parameter a; see layers/affine/affine.h.
enum class Scale { bounded, exp, sigmoid, softplus };

/// One feature of a tile of made::tile_rows rows: x = (y - t) e^-s, and -s added to log_det. The parameters are
/// (2, tile_rows), a first, then t.
template <class T>
using Kernel = void (*)(Scale scale, T cap, const T* y, const T* parameters, T* x, T* log_det);

}  // namespace diffeo::affine_tile
