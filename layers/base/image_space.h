#pragma once

#include <cstdint>
#include <vector>

#include "diffeo/layers/base/space.h"

namespace diffeo {

/// Images as events: C channels of H rows and W columns, points (*batch, C, H, W). Throws SpecError at "shape" unless
/// `shape` is [C, H, W], each at least 1.
Space image_space(const std::vector<int64_t>& shape);

/// The same where each channel lives on an axis of its own, in all pixels.
Space image_space(const std::vector<Axis>& channels, int64_t height, int64_t width);

}  // namespace diffeo
