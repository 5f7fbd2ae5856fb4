#pragma once

#include <utility>

#include "diffeo/layers/base/module.h"

namespace diffeo {

/// The features of x (*batch, D) that stand at `first` and those at `second`, two index tensors that name each feature
/// once: (*batch, D1) and (*batch, D2). Differentiable any number of times; its derivative is `join_features`.
std::pair<Tensor, Tensor> split_features(const Tensor& x, const Tensor& first, const Tensor& second);

/// Puts them back where they stood.
Tensor join_features(const Tensor& x_first, const Tensor& x_second, const Tensor& first, const Tensor& second);

/// The same two, without autograd.
std::pair<Tensor, Tensor> take_apart(const Tensor& x, const Tensor& first, const Tensor& second);
Tensor put_together(const Tensor& x_first, const Tensor& x_second, const Tensor& first, const Tensor& second);

}  // namespace diffeo
