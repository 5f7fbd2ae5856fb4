#pragma once

#include "diffeo/layers/base/univariate.h"

namespace diffeo {

/// The Jacobian J = d y / d x of an autoregressive layer at points, never written down: y_i depends on x_i through the
/// map, whose slope is the diagonal, and on the features before it through the map's parameters.
class TriangularJacobian {
 public:
  /// `mapped` is the map at `own` given `parameters`, which are in the graph of `points` (*batch, D); `own` are the
  /// same points as the map alone sees them, an alias of `points`.
  TriangularJacobian(const Tensor& points, const Tensor& own, const Tensor& parameters, const Mapped& mapped);

  /// J^-T v for v (*batch, D), by substitution: each vector-Jacobian product through the network settles at least one
  /// feature more, the last in the order first, so that D of them are enough, and few where the features depend on each
  /// other weakly.
  Tensor solve_transposed(const Tensor& v) const;

 private:
  Tensor points_, parameters_;
  Tensor slope_;          ///< (*batch, D): d y_i / d x_i
  Tensor by_parameters_;  ///< (*batch, D, P): d y_i / d parameters of i
};

}  // namespace diffeo
