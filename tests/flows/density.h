#pragma once

#include <torch/types.h>

#include "diffeo/flows/distribution.h"

namespace diffeo::testing {

/// Points that cover a space of one or two features, with the volume that each stands for.
struct Grid {
  torch::Tensor points;   ///< (n, D)
  torch::Tensor volumes;  ///< (n)
};

/// An even grid on bounded axes; on unbounded ones it is even in asinh, from -e^`reach` / 2 to e^`reach` / 2.
Grid grid_over(const Space& space, int64_t per_axis, double reach);

}  // namespace diffeo::testing
