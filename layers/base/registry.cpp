#include "diffeo/layers/base/registry.h"

namespace diffeo {

LayerPtr build_layer(const Json& spec) { return find_entry(all_layers(), spec, "layer").build(spec); }

UnivariatePtr build_univariate(const Json& spec) { return find_entry(all_univariates(), spec, "map").build(spec); }

LayerPtr clone(const Layer& layer) {
  auto copy = build_layer(layer.spec());
  copy->to(layer.tensor_options().device(), c10::typeMetaToScalarType(layer.tensor_options().dtype()));
  copy_state(layer, *copy);
  copy->train(layer.is_training());
  return copy;
}

}  // namespace diffeo
