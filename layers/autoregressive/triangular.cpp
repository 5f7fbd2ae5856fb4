#include "diffeo/layers/autoregressive/triangular.h"

#include <ATen/ops/ones_like.h>

#include <limits>

#include "diffeo/layers/base/score.h"

namespace diffeo {

TriangularJacobian::TriangularJacobian(const Tensor& points, const Tensor& own, const Tensor& parameters,
                                       const Mapped& mapped)
    : points_(points), parameters_(parameters) {
  const auto one = at::ones_like(mapped.value);
  slope_ = pulled_back({mapped.value}, {one}, own);
  by_parameters_ = pulled_back({mapped.value}, {one}, parameters);
}

Tensor TriangularJacobian::solve_transposed(const Tensor& v) const {
  auto solution = v / slope_;
  if (v.numel() == 0) return solution;
  const double rounding =
      v.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  for (int64_t i = 1; i < v.size(-1); ++i) {
    const auto from_later = pulled_back({parameters_}, {by_parameters_ * solution.unsqueeze(-1)}, points_);
    const auto next = (v - from_later) / slope_;
    // The change is what is left of the equation, over the slope: nothing more to gain below rounding.
    const auto change = (next - solution).abs().amax(), size = next.abs().amax();
    solution = next;
    if ((change <= rounding * size).item<bool>()) break;
  }
  return solution;
}

}  // namespace diffeo
