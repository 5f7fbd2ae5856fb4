#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "diffeo/layers/affine/affine_form.h"

namespace diffeo::affine {

/// y = e^s x + t and the sum over features of s, differentiable any number of times.
///
/// x (*batch, D), parameters (a, t) (*batch, D, 2) or (D, 2), s = s(a). With `inverse`, x is y and comes out as x, with
/// minus the sum of s. e^s stays at e^87 or e^-87 (float64: e^708, e^-708) where s is beyond, so that it is a number.
std::tuple<at::Tensor, at::Tensor> apply(const at::Tensor& x, const at::Tensor& parameters, const Form& form,
                                         bool inverse);

/// Whether there is a kernel for such points.
bool has_kernel(const at::Tensor& x);

/// Derivatives by x and parameters without a graph, given the value that `apply` made of them; where there is a kernel.
std::tuple<at::Tensor, at::Tensor> gradients(const at::Tensor& x, const at::Tensor& parameters, const at::Tensor& value,
                                             const at::Tensor& by_value, const at::Tensor& by_log_det, const Form& form,
                                             bool inverse);

/// The same in plain tensor operations: the oracle of the tests, and second derivatives in use.
std::tuple<at::Tensor, at::Tensor> reference(const at::Tensor& x, const at::Tensor& parameters, const Form& form,
                                             bool inverse);

/// s(a), of any shape.
at::Tensor log_scale(const at::Tensor& a, const Form& form);

}  // namespace diffeo::affine
