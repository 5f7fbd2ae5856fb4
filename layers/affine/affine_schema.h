#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "diffeo/layers/affine/affine_form.h"

// How the affine map's kernels are called through torch's dispatcher, which picks the device.
namespace diffeo::affine {

using Pair = std::tuple<at::Tensor, at::Tensor>;

/// value and log_det of x (*batch, D); parameters (*batch, D, 2), or (D, 2) shared by the batch. `scale` is a Scale.
using ForwardOp = Pair(const at::Tensor& x, const at::Tensor& parameters, int64_t scale, double cap, bool inverse);
/// Derivatives by x and parameters; for the inverse, x is what it gave back, and its argument's derivative is returned.
using BackwardOp = Pair(const at::Tensor& x, const at::Tensor& parameters, const at::Tensor& by_value,
                        const at::Tensor& by_log_det, int64_t scale, double cap, bool inverse);

inline bool is_shared(const at::Tensor& x, const at::Tensor& parameters) {
  return parameters.dim() == 2 && x.dim() != 1;
}

}  // namespace diffeo::affine
