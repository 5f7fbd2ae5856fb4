#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

namespace diffeo::rq_spline {

enum class Tails : int64_t { linear, none, circular };

/// Everything about a spline that is not a parameter. Lengths are in the units of x and y.
struct Shape {
  int64_t bins;
  Tails tails;
  double x_lower, x_upper, y_lower, y_upper;
  double min_width, min_height;  ///< parts of the domain and of the codomain
  double min_slope;

  int64_t parameters() const;  ///< 3K - 1 (linear), 3K + 1 (none) or 3K (circular)
};

/// The spline and the sum over features of its log slope, differentiable any number of times.
///
/// x (*batch, D), parameters (*batch, D, P) or (D, P). With `inverse`, x is y and comes out as x.
/// Points beyond the ends are mapped by the identity (linear), or as if they lay on the end (others).
std::tuple<at::Tensor, at::Tensor> apply(const at::Tensor& x, const at::Tensor& parameters, const Shape& shape,
                                         bool inverse);

/// The same in plain tensor operations: the oracle of the tests, and second derivatives in use.
std::tuple<at::Tensor, at::Tensor> reference(const at::Tensor& x, const at::Tensor& parameters, const Shape& shape,
                                             bool inverse);

}  // namespace diffeo::rq_spline
