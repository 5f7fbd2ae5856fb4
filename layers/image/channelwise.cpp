#include "diffeo/layers/image/channelwise.h"

#include "diffeo/layers/base/image_space.h"
#include "diffeo/layers/base/registry.h"
#include "diffeo/layers/image/pixels.h"

namespace diffeo {
namespace {

LayerPtr build_inner(const Channelwise::Options& options) {
  image_space(options.shape);
  auto layer = within("layer", [&] { return build_layer(options.layer); });
  if (layer->domain().event != std::vector<int64_t>{options.shape[0]} || layer->codomain().event.size() != 1)
    throw SpecError("layer", c10::str("expected a layer of ", options.shape[0], " features, one for each channel, got ",
                                      "one from ", to_string(layer->domain()), " to ", to_string(layer->codomain())));
  return layer;
}

Space pixels(const Channelwise::Options& options, const Space& channels) {
  return image_space(channels.axes, options.shape[1], options.shape[2]);
}

/// One context for each image, for each of its pixels.
Tensor spread(const Tensor& context) { return context.defined() ? context.unsqueeze(-2).unsqueeze(-2) : context; }

Mapped gathered(const Mapped& mapped) { return {images_of(mapped.value), mapped.log_det.sum({-2, -1})}; }

}  // namespace

Channelwise::Channelwise(const Options& options) : Channelwise(options, build_inner(options)) {}

Channelwise::Channelwise(const Options& options, LayerPtr layer)
    : Layer(pixels(options, layer->domain()), pixels(options, layer->codomain()), layer->context_size()),
      options_(options),
      layer_(register_module("layer", std::move(layer))) {}

Mapped Channelwise::map(const Tensor& x, const Tensor& context) {
  return gathered(layer_->forward(pixels_of(x), spread(context)));
}

Mapped Channelwise::unmap(const Tensor& y, const Tensor& context) {
  return gathered(layer_->inverse(pixels_of(y), spread(context)));
}

DIFFEO_LAYER(channelwise, Channelwise,
             "A layer on the channels of every pixel: ActNorm, 1x1 convolution (Kingma and Dhariwal 2018).",
             "y[:, i, j] = layer(x[:, i, j]); log_det = sum over pixels of that of the layer",
             "H W times that of the layer",
             {"actnorm", {{"shape", {3, 2, 2}}, {"layer", {{"type", "actnorm"}, {"features", 3}}}}},
             {"lu", {{"shape", {3, 2, 1}}, {"layer", {{"type", "lu_linear"}, {"features", 3}, {"permute", "random"}}}}},
             {"coupling", Json::parse(R"({"shape": [2, 2, 2], "layer": {"type": "coupling", "features": 2, "context": 2,
                                          "net": {"width": 8, "activation": "tanh"}}})")});

}  // namespace diffeo
