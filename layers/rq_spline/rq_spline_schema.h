#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>
#include <vector>

#include "diffeo/layers/rq_spline/rq_spline_shape.h"

// How the spline's kernels are called through torch's dispatcher, which picks the device.
namespace diffeo::rq_spline {

using Pair = std::tuple<at::Tensor, at::Tensor>;

/// value and log_det of x (*batch, D); parameters (*batch, D, P), or (D, P) shared by the batch.
using ForwardOp = Pair(const at::Tensor& x, const at::Tensor& parameters, at::ArrayRef<double> shape, bool inverse);
/// Derivatives by x and parameters; for the inverse, x is what it gave back, and its argument's derivative is returned.
using BackwardOp = Pair(const at::Tensor& x, const at::Tensor& parameters, const at::Tensor& by_value,
                        const at::Tensor& by_log_det, at::ArrayRef<double> shape, bool inverse);

/// A Shape as the list of numbers that a schema can carry, and back.
inline std::vector<double> numbers_of(const Shape& s) {
  return {static_cast<double>(s.bins),
          static_cast<double>(s.tails),
          s.x_lower,
          s.x_upper,
          s.y_lower,
          s.y_upper,
          s.min_width,
          s.min_height,
          s.min_slope,
          s.temperature};
}
inline Shape shape_from(at::ArrayRef<double> n) {
  return {static_cast<int64_t>(n[0]),
          static_cast<Tails>(static_cast<int64_t>(n[1])),
          n[2],
          n[3],
          n[4],
          n[5],
          n[6],
          n[7],
          n[8],
          n[9]};
}

inline bool is_shared(const at::Tensor& x, const at::Tensor& parameters) {
  return parameters.dim() == 2 && x.dim() != 1;
}

}  // namespace diffeo::rq_spline
