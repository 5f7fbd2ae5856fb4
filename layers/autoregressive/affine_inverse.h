#pragma once

#include <c10/core/Device.h>

#include "diffeo/layers/autoregressive/affine_tile_cpu.h"

namespace diffeo::affine_tile {

/// An autoregressive layer of affine maps, in pointers. All but `program`'s steps lies on the GPU, its units too.
template <class T>
struct Inversion {
  made::UnitProgram<T> program;
  const int64_t* sequence;  ///< the features in their order
  Scale scale;
  T cap;
  int64_t rows;          ///< at least 1
  const T *context, *y;  ///< (rows, C) and (rows, D)
  T *x, *log_det;        ///< (rows, D) and (rows)
};

/// Finds x, feature by feature, in one kernel: a block of threads for a tile of rows, whose hidden units lie in shared
/// memory. False, and nothing done, where they do not fit there, for networks of more steps than the kernel has room
/// for (residual ones of more than seven blocks), and in a build without CUDA.
bool invert_on_gpu(const Inversion<float>& inversion, c10::Device device);
bool invert_on_gpu(const Inversion<double>& inversion, c10::Device device);

}  // namespace diffeo::affine_tile
