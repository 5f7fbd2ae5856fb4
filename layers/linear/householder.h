#pragma once

#include <ATen/core/Tensor.h>

namespace diffeo {

/// A product of reflections as I - V T^-1 V^T: `vectors` V (D, K), one unit vector in each column, and `triangle` T
/// (K, K), upper triangular. Orthogonal to rounding, and two matrix products instead of K.
///
/// Joffrain et al., "Accumulating Householder transformations, revisited", 2006,
/// https://doi.org/10.1145/1141885.1141886.
struct Reflections {
  at::Tensor vectors, triangle;

  /// H_1 ... H_K with H_i = I - 2 v_i v_i^T / |v_i|^2 for the columns of `columns` (D, K).
  explicit Reflections(const at::Tensor& columns);
  /// The product applied to the columns of `points` (D, N).
  at::Tensor times(const at::Tensor& points) const;
  /// Its transpose, which is its inverse, applied to them.
  at::Tensor transposed_times(const at::Tensor& points) const;
};

}  // namespace diffeo
