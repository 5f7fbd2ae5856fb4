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

LayerPtr build_inner(const FactorOut::Options& options) {
  const auto space = image_space({kept_channels(options), options.shape[1], options.shape[2]});
  const auto layers = build_layer({{"type", "sequential"}, {"layers", options.layers}});
  if (!layers->domain().same_as(space))
    throw SpecError("layers/0", c10::str("starts from ", to_string(layers->domain()), ", but what comes to it is ",
                                         to_string(space)));
  if (layers->codomain().event.size() != 1)
    throw SpecError("layers", c10::str("end in ", to_string(layers->codomain()),
                                       ", not in a flat row; end them with the inverse of an image layer"));
  return layers;
}

/// The end of the layers, and the values that are done.
Space space_after(const FactorOut::Options& options, const Layer& layers) {
  auto axes = layers.codomain().axes;
  axes.resize(axes.size() + (options.shape[0] - kept_channels(options)) * options.shape[1] * options.shape[2]);
  return Space::product(std::move(axes));
}

}  // namespace

FactorOut::FactorOut(const Options& options) : FactorOut(options, build_inner(options)) {}

FactorOut::FactorOut(const Options& options, LayerPtr layers)
    : Layer(image_space(options.shape), space_after(options, *layers), layers->context_size()), options_(options) {
  options_.keep = kept_channels(options);
  layers_ = register_module("layers", std::move(layers));
}

Json FactorOut::spec() const {
  auto options = options_;
  options.layers = layers_->spec()["layers"].get<std::vector<Json>>();
  return write("factor_out", options);
}

Mapped FactorOut::map(const Tensor& x, const Tensor& context) {
  const auto pixels = pixels_of(x);
  const auto [value, log_det] = layers_->forward(images_of(pixels.narrow(-1, 0, options_.keep)), context);
  const auto rest = pixels.narrow(-1, options_.keep, pixels.size(-1) - options_.keep).flatten(-3);
  return {at::cat({value, rest}, -1), log_det};
}

Mapped FactorOut::unmap(const Tensor& y, const Tensor& context) {
  const auto height = options_.shape[1], width = options_.shape[2], rest = options_.shape[0] - options_.keep;
  const auto inner = layers_->codomain().size();
  const auto [value, log_det] = layers_->inverse(y.narrow(-1, 0, inner), context);
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
