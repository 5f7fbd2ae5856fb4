#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>

#include "diffeo/layers/base/space.h"

namespace diffeo {

/// Points (*batch, D) of the open interval `axis`, those that miss it by rounding (an end itself, or a few ulp beyond)
/// moved to the nearest number inside, so that logarithms of distances to the ends are finite. NaN stays NaN.
/// Throws Error beginning with `who` that names value, row and feature of a point further out.
at::Tensor inside(const std::string& who, const at::Tensor& points, const Axis& axis);

/// The row and the feature of the first of `bad` (*batch, D) that is true. Rows are counted over the whole batch.
std::pair<int64_t, int64_t> first_of(const at::Tensor& bad);

}  // namespace diffeo
