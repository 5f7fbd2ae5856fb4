#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "diffeo/layers/rq_spline/rq_spline_shape.h"

namespace diffeo::rq_spline {

/// The spline and the sum over features of its log slope, differentiable any number of times.
///
/// x (*batch, D), parameters (*batch, D, P) or (D, P). With `inverse`, x is y and comes out as x.
/// Points beyond the ends are mapped by the identity (linear), as if they lay on the end (none), or as the points of
/// the circle that they are (circular).
std::tuple<at::Tensor, at::Tensor> apply(const at::Tensor& x, const at::Tensor& parameters, const Shape& shape,
                                         bool inverse);

/// Whether there is a kernel for such points.
bool has_kernel(const at::Tensor& x);

/// Derivatives by x and parameters without a graph, given the value that `apply` made of them; where there is a kernel.
std::tuple<at::Tensor, at::Tensor> gradients(const at::Tensor& x, const at::Tensor& parameters, const at::Tensor& value,
                                             const at::Tensor& by_value, const at::Tensor& by_log_det,
                                             const Shape& shape, bool inverse);

/// The same in plain tensor operations: the oracle of the tests, and second derivatives in use.
std::tuple<at::Tensor, at::Tensor> reference(const at::Tensor& x, const at::Tensor& parameters, const Shape& shape,
                                             bool inverse);

}  // namespace diffeo::rq_spline
