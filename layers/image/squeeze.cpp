#include "diffeo/layers/image/squeeze.h"

#include "diffeo/layers/base/image_space.h"
#include "diffeo/layers/base/registry.h"
#include "diffeo/layers/image/pixels.h"

namespace diffeo {
namespace {

Space space_after(const Squeeze::Options& options) {
  image_space(options.shape);
  const auto channels = options.shape[0], height = options.shape[1], width = options.shape[2];
  if (height % 2 != 0 || width % 2 != 0)
    throw SpecError("shape", c10::str("images of ", height, " x ", width,
                                      " pixels cannot be squeezed: both sides must be even (28 goes to 14 and 7, 32 to "
                                      "16, 8, 4, 2 and 1); squeeze no further"));
  return image_space({4 * channels, height / 2, width / 2});
}

Tensor no_change(const Tensor& x) { return x.new_zeros(x.sizes().slice(0, x.dim() - 3)); }

}  // namespace

Squeeze::Squeeze(const Options& options) : Layer(image_space(options.shape), space_after(options)), options_(options) {}

Mapped Squeeze::map(const Tensor& x, const Tensor&) { return {images_of(squeezed(pixels_of(x))), no_change(x)}; }
Mapped Squeeze::unmap(const Tensor& y, const Tensor&) { return {images_of(unsqueezed(pixels_of(y))), no_change(y)}; }

DIFFEO_LAYER(squeeze, Squeeze, "Blocks of 2 x 2 pixels become channels (Dinh et al. 2017).",
             "y[4 c + 2 i + j, h, w] = x[c, 2 h + i, 2 w + j]; log_det = 0", "a copy", {"one", {{"shape", {1, 2, 4}}}},
             {"two", {{"shape", {2, 4, 2}}}});

}  // namespace diffeo
