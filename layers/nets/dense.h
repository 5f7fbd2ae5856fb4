#pragma once

#include "diffeo/layers/base/module.h"

namespace diffeo::dense {

/// A dense network, as the arguments of `apply` and the order of its parameters describe it.
///
/// mlp: `depth` hidden layers; weight and bias of each map, the last one included.
/// residual: a first map, `depth` blocks h + W2 act(W1 act(h)), a last map; weight and bias of the first map; of a
/// block W1, b1, W2, b2, and weight and bias of its gate if `gated`; of the last map.
struct Shape {
  bool residual = false;
  int64_t depth = 0;
  std::string activation = "relu";
  bool gated = false;  ///< a block's output is multiplied by sigmoid(gate(context)) before it is added
  /// Factors of float32 products, there and back, are rounded to bfloat16, except those of the maps that read points
  /// and contexts; sums, biases and activations are not.
  bool bfloat16 = false;
};

/// True if `apply` has a fused form for a network and points: float32 and float64, on the CPU and, without bfloat16, on
/// CUDA.
bool fused(const Shape& shape, const Tensor& x);

/// The network at x (*batch, I), as one node of autograd: the products with bias and rectifier done on the way to
/// memory, derivatives of bias and rectifier in one pass. `context` (*batch, C) is used by gates only. Differentiable
/// any number of times. Gradients of parameters go to their places (gradient_place.h). On CUDA it is made of LibTorch's
/// operations (dense_tensors.h).
Tensor apply(const Shape& shape, const Tensor& x, const Tensor& context, at::TensorList parameters);

/// What a forward pass gives, and what it leaves for the way back.
struct Passed {
  Tensor output;  ///< (rows, outputs)
  std::vector<Tensor> kept;
};

/// What a backward pass is asked for.
struct Wanted {
  bool x = false, context = false, parameters = false;
};

/// Derivatives of the loss. Those by x and context are undefined, those by parameters none, where nobody asked.
struct Gradients {
  Tensor by_x, by_context;
  std::vector<Tensor> by_parameters;
};

/// The two halves of the node, without autograd, for a node that does more: x (rows, I), context (rows, C) or
/// undefined, contiguous, where `fused`.
Passed forward(const Shape& shape, const Tensor& x, const Tensor& context, at::TensorList parameters);
/// From what `forward` kept. Gradients of parameters go to their places.
Gradients backward(const Shape& shape, const Tensor& x, const Tensor& context, at::TensorList parameters,
                   const std::vector<Tensor>& kept, const Tensor& by_output, const Wanted& wanted);

/// The same node made of LibTorch's operations on every device, as `apply` makes it on CUDA: so that it is tested where
/// there is no GPU. For float32 and float64; rounds nothing to bfloat16.
Tensor apply_by_tensors(const Shape& shape, const Tensor& x, const Tensor& context, at::TensorList parameters);

/// The same in plain tensor operations: the oracle of the tests, second derivatives, and other devices.
Tensor reference(const Shape& shape, const Tensor& x, const Tensor& context, at::TensorList parameters);

}  // namespace diffeo::dense
