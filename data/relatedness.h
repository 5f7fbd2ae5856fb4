#pragma once

#include <torch/types.h>

#include <string>

#include "diffeo/data/table.h"

namespace diffeo {

/// Who is related to whom, as a file gives it: exactly one of the two is defined, in float64 on the CPU.
struct Relatedness {
  Tensor matrix;  ///< K, (n, n), symmetric
  Tensor factor;  ///< L, (n, r), for K = L L^T

  int64_t rows() const { return matrix.defined() ? matrix.size(0) : factor.size(0); }
  /// K, (n, n).
  Tensor dense() const;
};

/// Reads `FILE.h5:/OBJECT`. A dataset (n, n) is K itself; a dataset (n, r) with r < n is a factor L; a group with
/// `data`, `indices`, `indptr` (compressed sparse rows, numbers of columns ascending or not, and perhaps `shape`) is a
/// sparse factor L if it is not square or not symmetric, else K. Throws Error naming file and object: an object that is
/// missing, a matrix that is wider than high, a square one that is not symmetric, values that are not finite, sparse
/// rows that contradict each other.
Relatedness read_relatedness(const std::string& place);

/// Throws Error that begins with `name` unless `matrix` is square, finite and symmetric to float32's precision.
void check_relatedness(const Tensor& matrix, const std::string& name);

/// `FILE.h5:/OBJECT` as its two parts. Throws Error if there are not two.
TableSource file_and_object(const std::string& place);

}  // namespace diffeo
