#pragma once

#include "diffeo/flows/distribution.h"
#include "diffeo/layers/base/log_density.h"

namespace diffeo {

/// Log density and score of a distribution at x (*batch, *event), the gradient by x of its log density, both without a
/// graph: by differentiating log_prob, whose parameters are left alone.
Sloped score_of(Distribution& distribution, const Tensor& x, const Tensor& context = {});

}  // namespace diffeo
