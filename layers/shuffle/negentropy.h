#pragma once

#include <ATen/core/Tensor.h>

namespace diffeo {

/// Negentropy of each column of `values` (N, C), nats, (C): what its differential entropy falls short of that of a
/// normal of the same deviation, 0 for a normal and larger the less normal it is. By spacings of m = sqrt N ordered
/// values, clamped at the ends; ties and constant columns give a large number, not infinity. N at least 4.
///
/// Vasicek, "A test for normality based on sample entropy", 1976, eq. 1.
at::Tensor negentropy(const at::Tensor& values);

}  // namespace diffeo
