#pragma once

#include <ATen/core/Tensor.h>

namespace diffeo {

/// The features of x (*batch, D) in another order, given with its inverse: y_i = x_order[i]. The gradient goes back by
/// the inverse order in one copy; that of index_select is added up feature by feature. Differentiable any number of
/// times.
at::Tensor reordered(const at::Tensor& x, const at::Tensor& order, const at::Tensor& inverse);

}  // namespace diffeo
