#pragma once

#include <ATen/core/Tensor.h>

// y = below x + bend log(1 + e^x) of each element, with the sums of log dy/dx along rows: one node of autograd, whose
// first derivatives are another one. Score matching differentiates twice.
namespace diffeo::smooth_leaky_relu {

struct Applied {
  at::Tensor value;    ///< (*batch, D)
  at::Tensor log_det;  ///< (*batch), nats
};

/// Whether there is a kernel for such points: float32 or float64 on the CPU, slopes that are normal numbers.
bool has_kernel(const at::Tensor& x, double below, double bend);

/// x (*batch, D) through the map, by the kernel. Differentiable any number of times: beyond the second in plain tensor
/// operations.
Applied apply(const at::Tensor& x, double below, double bend);

}  // namespace diffeo::smooth_leaky_relu
