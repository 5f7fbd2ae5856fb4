#include "flows/density.h"

#include <cmath>

namespace diffeo::testing {
namespace {

/// Points (n) of one axis and the length that each stands for, by the midpoint rule.
std::pair<torch::Tensor, torch::Tensor> grid_over(const Axis& axis, int64_t n, double reach) {
  const auto middle = (torch::arange(n, torch::kDouble) + 0.5) / n;
  if (std::isfinite(axis.lower) && std::isfinite(axis.upper)) {
    const double width = axis.upper - axis.lower;
    return {axis.lower + width * middle, torch::full({n}, width / static_cast<double>(n), torch::kDouble)};
  }
  const auto t = reach * (2 * middle - 1);
  return {t.sinh(), t.cosh() * (2 * reach / static_cast<double>(n))};
}

}  // namespace

Grid grid_over(const Space& space, int64_t per_axis, double reach) {
  auto [points, volumes] = grid_over(space.axes[0], per_axis, reach);
  if (space.size() == 1) return {points.unsqueeze(1), volumes};
  const auto [others, other_volumes] = grid_over(space.axes[1], per_axis, reach);
  const auto corners = torch::meshgrid({points, others}, "ij");
  return {torch::stack({corners[0].flatten(), corners[1].flatten()}, 1),
          (volumes.unsqueeze(1) * other_volumes).flatten()};
}

}  // namespace diffeo::testing
