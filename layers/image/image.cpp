#include "diffeo/layers/image/image.h"

#include "diffeo/layers/base/image_space.h"
#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

Space rows_of(const Image::Options& options) {
  check_choice("layout", options.layout, {"nchw", "nhwc"});
  return Space::reals(image_space(options.shape).size());
}

Tensor no_change(const Tensor& x, int64_t event_dimensions) {
  return x.new_zeros(x.sizes().slice(0, x.dim() - event_dimensions));
}

}  // namespace

Image::Image(const Options& options) : Layer(rows_of(options), image_space(options.shape)), options_(options) {}

Mapped Image::map(const Tensor& x, const Tensor&) {
  const auto& shape = options_.shape;
  if (options_.layout == "nchw") return {x.unflatten(-1, shape), no_change(x, 1)};
  return {x.unflatten(-1, {shape[1], shape[2], shape[0]}).movedim(-1, -3), no_change(x, 1)};
}

Mapped Image::unmap(const Tensor& y, const Tensor&) {
  return {(options_.layout == "nchw" ? y : y.movedim(-3, -1)).flatten(-3), no_change(y, 3)};
}

DIFFEO_LAYER(image, Image, "Flat rows as images of channels, rows and columns; its inverse flattens.",
             "y[c, i, j] = x[(c H + i) W + j] (nchw) or x[(i W + j) C + c] (nhwc); log_det = 0", "a view",
             {"nchw", {{"shape", {2, 2, 3}}}}, {"nhwc", {{"shape", {2, 2, 3}}, {"layout", "nhwc"}}});

}  // namespace diffeo
