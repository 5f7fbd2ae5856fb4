#pragma once

#include <cstdint>

// What the CPU kernels of a masked linear map work on: plain pointers, since files compiled for one instruction set may
// see nothing else.
namespace diffeo::masked_linear {

/// to (rows, columns) = a (rows, steps) panel (steps, columns) + start, or added to `to`.
template <class T>
struct Product {
  const T* a;
  int64_t a_row, a_step;  ///< strides
  const T* panel;         ///< (steps, width of a panel), contiguous
  int64_t steps;
  const T* start;  ///< (width of a panel), the start of every row, or null for 0
  bool add;        ///< to what `to` holds
  T* to;
  int64_t to_row;  ///< stride
  int64_t rows, columns;
};

template <class T>
struct ProductKernels {
  int64_t width;  ///< columns of a panel
  void (*multiply)(const Product<T>& product);
  /// panel (steps, width) = rows (steps, columns), with zeros in the columns to spare.
  void (*pack)(const T* rows, int64_t stride, int64_t steps, int64_t columns, T* panel);
  /// panel (steps, width) = rows (columns, steps)^T; the columns to spare repeat the last one.
  void (*pack_transposed)(const T* rows, int64_t stride, int64_t steps, int64_t columns, T* panel);
};

}  // namespace diffeo::masked_linear
