#include "diffeo/layers/image/factor_out.h"

#include <ATen/ops/cat.h>

#include "diffeo/layers/base/image_space.h"
#include "diffeo/layers/base/registry.h"
#include "diffeo/layers/image/pixels.h"

namespace diffeo {
namespace {

int64_t kept_channels(const FactorOut::Options& options) {
  image_space(options.shape);
  const auto channels = options.shape[0];
  if (channels < 2) throw SpecError("shape", "an image of one channel has none to factor out; squeeze it first");
  const auto keep = options.keep == 0 ? channels / 2 : options.keep;
  if (keep < 1 || keep >= channels)
    throw SpecError("keep", c10::str("must be 1 to ", channels - 1, " of ", channels, " channels, got ", options.keep));
  return keep;
}

std::vector<LayerPtr> build_all(const FactorOut::Options& options) {
  auto space = image_space({kept_channels(options), options.shape[1], options.shape[2]});
  if (options.layers.empty()) throw SpecError("layers", "needs at least one, which flattens the image");
  std::vector<LayerPtr> layers;
  for (size_t i = 0; i < options.layers.size(); ++i) {
    const auto place = c10::str("layers/", i);
    layers.push_back(within(place, [&] { return build_layer(options.layers[i]); }));
    if (!layers.back()->domain().same_as(space))
      throw SpecError(place, c10::str("starts from ", to_string(layers.back()->domain()), ", but what comes to it is ",
                                      to_string(space)));
    space = layers.back()->codomain();
  }
  if (space.event.size() != 1)
    throw SpecError("layers", c10::str("end in ", to_string(space),
                                       ", not in a flat row; end them with the inverse of "
                                       "an image layer"));
  return layers;
}

/// The end of the layers, and the values that are done.
Space space_after(const FactorOut::Options& options, const std::vector<LayerPtr>& layers) {
  auto axes = layers.back()->codomain().axes;
  axes.resize(axes.size() + (options.shape[0] - kept_channels(options)) * options.shape[1] * options.shape[2]);
  return Space::product(std::move(axes));
}

int64_t context_of(const std::vector<LayerPtr>& layers) {
  int64_t size = 0;
  for (const auto& layer : layers) {
    if (layer->context_size() == 0) continue;
    check(size == 0 || size == layer->context_size(), "factor_out: layers take contexts of ", size, " and of ",
          layer->context_size(), " values; all must take the same context");
    size = layer->context_size();
  }
  return size;
}

Tensor context_for(const Layer& layer, const Tensor& context) { return layer.context_size() > 0 ? context : Tensor(); }

}  // namespace

FactorOut::FactorOut(const Options& options) : FactorOut(options, build_all(options)) {}

FactorOut::FactorOut(const Options& options, std::vector<LayerPtr> layers)
    : Layer(image_space(options.shape), space_after(options, layers), context_of(layers)),
      options_(options),
      layers_(std::move(layers)) {
  options_.keep = kept_channels(options);
  for (size_t i = 0; i < layers_.size(); ++i) register_module(std::to_string(i), layers_[i]);
}

Traits FactorOut::traits() const {
  Traits all{.constant_log_det = true};
  for (const auto& layer : layers_) all = all & layer->traits();
  return all;
}

Json FactorOut::spec() const {
  auto options = options_;
  options.layers.clear();
  for (const auto& layer : layers_) options.layers.push_back(layer->spec());
  return write("factor_out", options);
}

Mapped FactorOut::map(const Tensor& x, const Tensor& context) {
  const auto pixels = pixels_of(x);
  auto value = images_of(pixels.narrow(-1, 0, options_.keep));
  Tensor log_det;
  for (const auto& layer : layers_) {
    const auto step = layer->forward(value, context_for(*layer, context));
    value = step.value;
    log_det = log_det.defined() ? log_det + step.log_det : step.log_det;
  }
  const auto rest = pixels.narrow(-1, options_.keep, pixels.size(-1) - options_.keep).flatten(-3);
  return {at::cat({value, rest}, -1), log_det};
}

Mapped FactorOut::unmap(const Tensor& y, const Tensor& context) {
  const auto height = options_.shape[1], width = options_.shape[2], rest = options_.shape[0] - options_.keep;
  const auto inner = layers_.back()->codomain().size();
  auto value = y.narrow(-1, 0, inner);
  Tensor log_det;
  for (size_t i = layers_.size(); i-- > 0;) {
    const auto step = layers_[i]->inverse(value, context_for(*layers_[i], context));
    value = step.value;
    log_det = log_det.defined() ? log_det + step.log_det : step.log_det;
  }
  const auto done = y.narrow(-1, inner, height * width * rest).unflatten(-1, {height, width, rest});
  return {images_of(at::cat({pixels_of(value), done}, -1)), log_det};
}

DIFFEO_LAYER(factor_out, FactorOut, "One scale: half of the channels go on, the others are done (Dinh et al. 2017).",
             "y = (layers(x_kept), x_rest); log_det = that of the layers", "that of the layers",
             {"one", Json::parse(R"({"shape": [4, 2, 2], "layers": [
                {"type": "image_coupling", "shape": [2, 2, 2], "net": {"width": 4, "activation": "tanh"}},
                {"type": "inverse", "layer": {"type": "image", "shape": [2, 2, 2]}}]})")},
             {"nested", Json::parse(R"({"shape": [2, 2, 2], "keep": 1, "layers": [
                {"type": "squeeze", "shape": [1, 2, 2]},
                {"type": "factor_out", "shape": [4, 1, 1], "keep": 3, "layers": [
                  {"type": "image_coupling", "shape": [3, 1, 1], "context": 2,
                   "net": {"width": 4, "activation": "tanh"}},
                  {"type": "inverse", "layer": {"type": "image", "shape": [3, 1, 1]}}]}]})")});

}  // namespace diffeo
