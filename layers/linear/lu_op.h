#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace diffeo::lu {

/// y = L U P x + b and log|det| as one node of the graph, differentiable any number of times.
///
/// x (*batch, D); `lu` (D, D) holds both triangles as LuLinear describes them; `bias` (D) or undefined; column j of U P
/// is column inverse_order[j] of U, or P is the identity where `inverse_order` is undefined. With `inverse`, x is y and
/// comes out as x, by triangular solves. log_det (*batch), nats.
std::tuple<at::Tensor, at::Tensor> apply(const at::Tensor& x, const at::Tensor& lu, const at::Tensor& bias,
                                         const at::Tensor& inverse_order, bool inverse);

/// The same in plain tensor operations: the oracle of the tests, and second derivatives in use.
std::tuple<at::Tensor, at::Tensor> reference(const at::Tensor& x, const at::Tensor& lu, const at::Tensor& bias,
                                             const at::Tensor& inverse_order, bool inverse);

}  // namespace diffeo::lu
