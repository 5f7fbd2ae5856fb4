#include "diffeo/layers/inverse/inverse.h"

#include "diffeo/layers/base/registry.h"

namespace diffeo {

Inverse::Inverse(const Options& options) : Inverse(within("layer", [&] { return build_layer(options.layer); })) {}

Inverse::Inverse(LayerPtr layer)
    : Layer(layer->codomain(), layer->domain(), layer->context_size()),
      layer_(register_module("layer", std::move(layer))) {}

Traits Inverse::traits() const {
  auto traits = layer_->traits();
  std::swap(traits.closed_forward, traits.closed_inverse);
  std::swap(traits.quick_forward, traits.quick_inverse);
  return traits;
}

Json Inverse::spec() const { return write("inverse", Options{layer_->spec()}); }

DIFFEO_LAYER(inverse, Inverse, "A layer walked backwards.", "y = f^-1(x), log|det| = -log|det f'(y)| of the inner layer f", "those of the inner layer, exchanged",
    {"coupling", Json::parse(R"({"layer": {"type": "coupling", "features": 3, "context": 2, "net": {"width": 8}}})")});

}  // namespace diffeo
