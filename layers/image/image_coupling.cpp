#include "diffeo/layers/image/image_coupling.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include "diffeo/layers/base/image_space.h"
#include "diffeo/layers/base/registry.h"
#include "diffeo/layers/image/pixels.h"

namespace diffeo {
namespace {

Space space_of(const ImageCoupling::Options& options) {
  auto space = image_space(options.shape);
  check_choice("mask", options.mask, {"channels", "checkerboard"});
  if (options.mask == "channels" && options.shape[0] < 2)
    throw SpecError("shape", "an image of one channel has none to keep; squeeze it first, or take mask checkerboard");
  if (options.mask == "checkerboard" && options.shape[1] * options.shape[2] < 2)
    throw SpecError("shape", "an image of one pixel has no checkerboard; take mask channels");
  const auto map = within("map", [&] { return build_univariate(options.map); });
  if (map->parameters() == 0) throw SpecError("map", "has no parameters for the network to make");
  if (!map->domain().same_as(map->codomain()))
    throw SpecError("map", c10::str("goes from ", to_string(map->domain()), " to ", to_string(map->codomain()),
                                    "; kept and moved values must live on the same axis"));
  std::fill(space.axes.begin(), space.axes.end(), map->domain());
  return space;
}

/// Times that a context image has to be squeezed.
int64_t squeezes(const ImageCoupling::Options& options) {
  int64_t height = options.context_image[1], width = options.context_image[2], times = 0;
  while (height % 2 == 0 && width % 2 == 0 && height > options.shape[1]) height /= 2, width /= 2, ++times;
  if (height != options.shape[1] || width != options.shape[2])
    throw SpecError("context_image",
                    c10::str("its sides must be ", options.shape[1], " x ", options.shape[2],
                             " times a power of two, got ", options.context_image[1], " x ", options.context_image[2]));
  return times;
}

int64_t context_values(const ImageCoupling::Options& options) {
  check_choice("context_layout", options.context_layout, {"nchw", "nhwc"});
  if (options.context_image.empty()) return at_least(0, "context", options.context);
  if (options.context != 0) throw SpecError("context", "is the size of context_image where there is one; leave it out");
  const auto size = within("context_image", [&] { return image_space(options.context_image).size(); });
  squeezes(options);
  return size;
}

}  // namespace

ImageCoupling::ImageCoupling(const Options& options)
    : Layer(space_of(options), context_values(options)), options_(options), map_(build_univariate(options.map)) {
  const auto channels = options.shape[0], height = options.shape[1], width = options.shape[2];
  auto inputs = channels;
  count_ = channels;
  if (options.mask == "channels") {
    const auto half = channels / 2;
    first_ = options.flip ? 0 : half;
    count_ = options.flip ? half : channels - half;
    inputs = channels - count_;
  } else {
    const auto pixel = at::arange(height * width);
    const auto even = (pixel.div(width, "floor") + pixel.remainder(width)).remainder(2).eq(options.flip ? 1 : 0);
    kept_pixels_ = register_buffer("kept_pixels", even.nonzero().flatten());
    moved_pixels_ = register_buffer("moved_pixels", even.logical_not().nonzero().flatten());
    order_ = register_buffer("order", at::cat({kept_pixels_, moved_pixels_}).argsort());
    mask_ = register_buffer("mask", even.view({height, width, 1}).to(at::kFloat));
  }
  if (!options.context_image.empty()) inputs += options.context_image[0] << (2 * squeezes(options));
  net_ = register_module("net", within("net", [&] {
                           return build_conv_net(options.net, inputs, options.context, count_ * map_->parameters(),
                                                 identities(*map_, count_));
                         }));
}

Json ImageCoupling::spec() const {
  auto options = options_;
  options.map = map_->spec();
  return write("image_coupling", options);
}

Tensor ImageCoupling::parameters_from(const Tensor& seen, const Tensor& context) {
  const std::vector<int64_t> each{count_, map_->parameters()};
  if (options_.context_image.empty()) return net_->forward(seen, context).unflatten(-1, each);
  const auto& shape = options_.context_image;
  auto image = options_.context_layout == "nhwc" ? context.unflatten(-1, {shape[1], shape[2], shape[0]})
                                                 : context.unflatten(-1, shape).movedim(-3, -1);
  for (auto times = squeezes(options_); times > 0; --times) image = squeezed(image);
  return net_->forward(at::cat({seen, image}, -1)).unflatten(-1, each);
}

Mapped ImageCoupling::moved(const Tensor& images, const Tensor& context, bool inverse) {
  const auto pixels = pixels_of(images);
  // The moved values of an image are the features of one row of the map.
  const auto mapped = [&](const Tensor& values, const Tensor& parameters) {
    const auto rows = values.flatten(images.dim() - 3);
    auto shape = rows.sizes().vec();
    shape.push_back(map_->parameters());
    const auto each = parameters.reshape(shape);
    auto result = inverse ? map_->inverse(rows, each) : map_->forward(rows, each);
    return Mapped{result.value.view(values.sizes()), result.log_det};
  };
  if (options_.mask == "channels") {
    const auto channels = pixels.size(-1), kept = channels - count_;
    const auto seen = pixels.narrow(-1, first_ == 0 ? count_ : 0, kept);
    const auto [value, log_det] =
        mapped(pixels.narrow(-1, first_, count_).contiguous(), parameters_from(seen, context));
    return {images_of(first_ == 0 ? at::cat({value, seen}, -1) : at::cat({seen, value}, -1)), log_det};
  }
  const auto parameters = parameters_from(pixels * mask_, context).flatten(-4, -3).index_select(-3, moved_pixels_);
  const auto flat = pixels.flatten(-3, -2);
  const auto [value, log_det] = mapped(flat.index_select(-2, moved_pixels_), parameters);
  const auto both = at::cat({flat.index_select(-2, kept_pixels_), value}, -2).index_select(-2, order_);
  return {images_of(both.view(pixels.sizes())), log_det};
}

Mapped ImageCoupling::map(const Tensor& x, const Tensor& context) { return moved(x, context, false); }
Mapped ImageCoupling::unmap(const Tensor& y, const Tensor& context) { return moved(y, context, true); }

DIFFEO_LAYER(image_coupling, ImageCoupling,
             "A coupling of images by a convolutional network (Dinh et al. 2017, Kingma and Dhariwal 2018).",
             "y_kept = x_kept, y_moved = map(x_moved; net(x_kept, c)); log_det = that of the map",
             "one pass of the network each way",
             {"channels", Json::parse(R"({"shape": [3, 2, 3], "net": {"width": 4, "activation": "tanh"}})")},
             {"flipped", Json::parse(R"({"shape": [2, 2, 2], "flip": true, "context": 2,
                                         "net": {"type": "gated_residual", "width": 4, "activation": "tanh"}})")},
             {"checkerboard", Json::parse(R"({"shape": [1, 3, 3], "mask": "checkerboard",
                                              "net": {"width": 4, "activation": "tanh"}})")},
             {"spline", Json::parse(R"({"shape": [2, 2, 2], "map": {"type": "rq_spline", "bins": 4},
                                        "net": {"width": 4, "activation": "tanh"}})")},
             {"context_image", Json::parse(R"({"shape": [2, 1, 2], "context_image": [1, 2, 4],
                                               "net": {"width": 4, "activation": "tanh"}})")});

}  // namespace diffeo
