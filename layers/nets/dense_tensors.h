#pragma once

#include "diffeo/layers/nets/dense.h"

// A dense network and its derivatives in LibTorch's operations, without autograd: what the node of dense.h does on
// CUDA. It runs on any device.
namespace diffeo::dense {

/// x (rows, inputs), context (rows, C) or undefined. A product, its bias and a rectifier are one call, which is one
/// cuBLASLt kernel on CUDA. Without `keep`, nothing is left for the way back.
Passed forward_by_tensors(const Shape& shape, const Tensor& x, const Tensor& context, at::TensorList parameters,
                          bool keep);

/// From what a forward pass kept. Products write the gradients of parameters to their places (gradient_place.h).
Gradients backward_by_tensors(const Shape& shape, const Tensor& x, const Tensor& context,
                              const std::vector<Tensor>& parameters, const std::vector<Tensor>& kept,
                              const Tensor& by_output, const Wanted& wanted);

}  // namespace diffeo::dense
