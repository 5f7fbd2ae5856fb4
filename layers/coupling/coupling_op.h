#pragma once

#include <torch/custom_class.h>

#include <functional>

#include "diffeo/layers/base/univariate.h"
#include "diffeo/layers/nets/dense.h"

// A coupling as one node of autograd: the network, the maps and the features' way apart and together again. What is
// small beside the products of a small network is the number of operations that LibTorch has to be told of.
namespace diffeo::coupling {

/// What a coupling is made of, but for parameters.
struct Plan : torch::CustomClassHolder {
  UnivariatePtr map, kept_map;  ///< kept_map may be null
  Tensor kept, moved;           ///< indices of the kept and of the moved features
};
using PlanPtr = c10::intrusive_ptr<Plan>;

/// Whether `apply` can take points x: the maps have kernels and gradients, and there is a fused network for them.
bool fused(const Plan& plan, const dense::Shape& shape, const Tensor& x);

/// y and log_det of points x (*batch, D), or of inverse. The network gets the kept features, joined by the context
/// (*batch, C) where it is defined. Differentiable any number of times; gradients of parameters go to their places
/// (gradient_place.h).
Mapped apply(const PlanPtr& plan, const dense::Shape& shape, const Tensor& x, const Tensor& context,
             const Tensor& kept_parameters, at::TensorList parameters, bool inverse);

/// The same, operation by operation, with a network of any kind from kept features to parameters (*batch, moved, P).
Mapped composed(const Plan& plan, const Tensor& x, const Tensor& kept_parameters,
                const std::function<Tensor(const Tensor& kept)>& parameters_of, bool inverse);

}  // namespace diffeo::coupling
