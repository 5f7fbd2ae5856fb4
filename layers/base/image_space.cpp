#include "diffeo/layers/base/image_space.h"

#include "diffeo/layers/base/options.h"

namespace diffeo {

Space image_space(const std::vector<int64_t>& shape) {
  if (shape.size() != 3) throw SpecError("shape", c10::str("expected [C, H, W], got ", Json(shape).dump()));
  int64_t size = 1;
  for (size_t i = 0; i < 3; ++i) {
    at_least(1, c10::str("shape/", i), shape[i]);
    if (__builtin_mul_overflow(size, shape[i], &size))
      throw SpecError("shape", c10::str("is too large: ", Json(shape).dump()));
  }
  auto space = Space::reals(size);
  space.event = shape;
  return space;
}

Space image_space(const std::vector<Axis>& channels, int64_t height, int64_t width) {
  auto space = image_space({static_cast<int64_t>(channels.size()), height, width});
  for (size_t i = 0; i < space.axes.size(); ++i) space.axes[i] = channels[i / static_cast<size_t>(height * width)];
  return space;
}

}  // namespace diffeo
