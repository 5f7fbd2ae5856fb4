#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/diag_embed.h>
#include <ATen/ops/softplus.h>

#include <cmath>

namespace diffeo {

constexpr double least_diagonal = 1e-3;
/// The raw value at which the diagonal is 1.
inline double raw_diagonal_of_one() { return std::log(std::expm1(1 - least_diagonal)); }

/// The upper triangle of a square matrix, its diagonal made positive: softplus(a_ii) + 1e-3.
struct PositiveUpper {
  at::Tensor matrix;   ///< (D, D)
  at::Tensor log_det;  ///< scalar, nats

  explicit PositiveUpper(const at::Tensor& raw) {
    const auto diagonal = at::softplus(raw.diagonal()) + least_diagonal;
    matrix = raw.triu(1) + at::diag_embed(diagonal);
    log_det = diagonal.log().sum();
  }
};

}  // namespace diffeo
