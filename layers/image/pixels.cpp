#include "diffeo/layers/image/pixels.h"

namespace diffeo {

Tensor pixels_of(const Tensor& images) { return images.movedim(-3, -1).contiguous(); }
Tensor images_of(const Tensor& pixels) { return pixels.movedim(-1, -3); }

Tensor squeezed(const Tensor& pixels) {
  const auto height = pixels.size(-3), width = pixels.size(-2);
  // (*, H/2, 2, W/2, 2, C) -> (*, H/2, W/2, C, 2, 2)
  return pixels.unflatten(-2, {width / 2, 2})
      .unflatten(-4, {height / 2, 2})
      .movedim(std::vector<int64_t>{-4, -2}, std::vector<int64_t>{-2, -1})
      .flatten(-3);
}

Tensor unsqueezed(const Tensor& pixels) {
  // (*, H/2, W/2, C, 2, 2) -> (*, H/2, 2, W/2, 2, C)
  return pixels.unflatten(-1, {pixels.size(-1) / 4, 2, 2})
      .movedim(std::vector<int64_t>{-2, -1}, std::vector<int64_t>{-4, -2})
      .flatten(-3, -2)
      .flatten(-4, -3);
}

}  // namespace diffeo
