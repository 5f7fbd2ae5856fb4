#pragma once

#include "diffeo/layers/affine/affine_form.h"

// What the CPU kernels work on: plain pointers, since files compiled for one instruction set may see nothing else.
namespace diffeo::affine {

/// Rows of a block whose derivatives by shared parameters are summed up before they are written.
inline constexpr int64_t rows_of_shared_block = 256;

/// A pass over rows of contiguous tensors.
template <class T>
struct Pass {
  Form form;
  bool inverse;
  bool shared;          ///< parameters are those of every row
  int64_t columns;      ///< D
  const T* x;           ///< (rows, D): what is mapped; going back through an inverse, what it had given
  const T* parameters;  ///< (rows, D, 2), or (D, 2) if shared
  T* value;             ///< forward: (rows, D)
  T* log_det;           ///< forward: (rows)
  const T* by_value;    ///< backward: derivatives of the loss by value, (rows, D)
  const T* by_log_det;  ///< backward: by log_det, (rows)
  T* by_x;              ///< backward: (rows, D)
  T* by_parameters;     ///< backward: (rows, D, 2), or (blocks, D, 2) if shared
};

/// The kernels of one instruction set. They work on rows [begin, end); the backward pass with shared parameters works
/// on blocks [begin, end) of `rows_of_shared_block` rows, of `rows` in all.
template <class T>
struct CpuKernels {
  void (*forward)(const Pass<T>& pass, int64_t begin, int64_t end);
  void (*backward)(const Pass<T>& pass, int64_t begin, int64_t end);
  void (*backward_shared)(const Pass<T>& pass, int64_t rows, int64_t begin, int64_t end);
};

}  // namespace diffeo::affine
