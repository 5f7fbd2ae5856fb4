#pragma once

#include <ATen/core/Tensor.h>

namespace diffeo {

/// a b of two matrices, or of their transposes, and a bias (columns) added to each row if there is one: one node of the
/// graph on the products of products.h, whose derivatives are such nodes again. So it is as fast in second and third
/// derivatives, as score matching needs them, as in first ones.
///
/// float32 and float64 matrices of any strides; on other devices LibTorch multiplies.
at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b, bool transpose_a = false, bool transpose_b = false,
                          const at::Tensor& bias = {});

}  // namespace diffeo
