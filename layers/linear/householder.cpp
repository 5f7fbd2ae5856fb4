#include "diffeo/layers/linear/householder.h"

#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_solve_triangular.h>

namespace diffeo {

Reflections::Reflections(const at::Tensor& columns) {
  // The floor is below the square of any number that training meets; a vector of zeros reflects nothing.
  vectors = columns * columns.square().sum(0).clamp_min(1e-30).rsqrt();
  triangle = vectors.t().mm(vectors).triu(1) + 0.5 * at::eye(columns.size(1), columns.options());
}

at::Tensor Reflections::times(const at::Tensor& points) const {
  return points - vectors.mm(at::linalg_solve_triangular(triangle, vectors.t().mm(points), /*upper=*/true));
}

at::Tensor Reflections::transposed_times(const at::Tensor& points) const {
  return points - vectors.mm(at::linalg_solve_triangular(triangle.t(), vectors.t().mm(points), /*upper=*/false));
}

}  // namespace diffeo
