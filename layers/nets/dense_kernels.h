#pragma once

#include <cstdint>

// What the CPU kernels of dense networks work on: plain pointers, since files compiled for one instruction set may see
// nothing else.
namespace diffeo::dense {

/// A gradient on its way back through the rectifier of a hidden layer, and its sum over the rows.
template <class T>
struct Rectified {
  const T* by_hidden;  ///< (rows, columns): derivatives by what the rectifier gave
  const T* hidden;     ///< (rows, columns): what it gave, or null for no rectifier
  T* by_input;         ///< (rows, columns): derivatives by what it took; may be by_hidden; null to have the sums alone
  T* sums;             ///< (columns): of by_input over the rows
  int64_t rows, columns;
  bool add;  ///< to what by_input was, before it is summed
};

/// The kernels of one instruction set. They work on columns [begin, end).
template <class T>
struct CpuKernels {
  void (*rectified)(const Rectified<T>& pass, int64_t begin, int64_t end);
};

}  // namespace diffeo::dense
