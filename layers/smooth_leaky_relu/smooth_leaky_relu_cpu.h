#pragma once

#include <cstdint>

// What the CPU kernels work on: plain pointers, since files compiled for one instruction set may see nothing else.
namespace diffeo::smooth_leaky_relu {

/// A pass over rows of contiguous tensors.
template <class T>
struct Pass {
  double below, bend;   ///< y = below x + bend log(1 + e^x)
  int64_t columns;      ///< D
  const T* x;           ///< (rows, D)
  T* value;             ///< forward: (rows, D)
  T* log_det;           ///< forward: (rows)
  const T* by_value;    ///< backward: derivatives of the loss by value, (rows, D)
  const T* by_log_det;  ///< backward: by log_det, (rows)
  T* by_x;              ///< backward: (rows, D)
  const T* along;       ///< second: derivatives of another loss by what backward gave, (rows, D)
  T* along_x;           ///< second: of that loss by x, (rows, D)
  T* along_by_value;    ///< second: by `by_value`, (rows, D)
  T* along_by_log_det;  ///< second: by `by_log_det`, (rows)
};

/// The kernels of one instruction set, on rows [begin, end).
template <class T>
struct CpuKernels {
  void (*forward)(const Pass<T>& pass, int64_t begin, int64_t end);
  void (*backward)(const Pass<T>& pass, int64_t begin, int64_t end);
  void (*second)(const Pass<T>& pass, int64_t begin, int64_t end);
};

}  // namespace diffeo::smooth_leaky_relu
