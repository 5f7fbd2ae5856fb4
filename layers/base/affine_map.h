#pragma once

#include "diffeo/layers/base/module.h"

namespace diffeo {

/// What a layer y = A x + b adds to `forward`, where A and b depend on no input: derivatives and differences of a
/// function of y become those of x by products with A, at any number of points.
class AffineMap {
 public:
  virtual ~AffineMap() = default;
  /// A v, of vectors v (*batch, *event).
  virtual Tensor linear(const Tensor& v) = 0;
  /// A^T u, of vectors u (*batch, *event) on the side of y: the gradient by x where u is that by y.
  virtual Tensor transposed(const Tensor& u) = 0;
  /// b, (*event), or undefined where it is 0.
  virtual Tensor offset() = 0;
};

}  // namespace diffeo
