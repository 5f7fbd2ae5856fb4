#include "diffeo/layers/sequential/sequential.h"

#include "diffeo/layers/base/constant_log_det_guard.h"
#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

std::vector<LayerPtr> build_all(const std::vector<Json>& specs) {
  std::vector<LayerPtr> layers;
  for (size_t i = 0; i < specs.size(); ++i)
    layers.push_back(within(c10::str("layers/", i), [&] { return build_layer(specs[i]); }));
  return layers;
}

const std::vector<LayerPtr>& fitting(const std::vector<LayerPtr>& layers) {
  check(!layers.empty(), "sequential: needs at least one layer");
  const auto called = [&](size_t i) {
    return c10::str("layers/", i, " (", layers[i]->spec()["type"].get<std::string>(), ")");
  };
  for (size_t i = 0; i + 1 < layers.size(); ++i)
    check(layers[i]->codomain().same_as(layers[i + 1]->domain()), "sequential: ", called(i), " ends in ",
          to_string(layers[i]->codomain()), " but ", called(i + 1), " starts from ",
          to_string(layers[i + 1]->domain()));
  return layers;
}

int64_t common_context(const std::vector<LayerPtr>& layers) {
  int64_t size = 0;
  for (const auto& layer : layers) {
    if (layer->context_size() == 0) continue;
    check(size == 0 || size == layer->context_size(), "sequential: layers take contexts of ", size, " and of ",
          layer->context_size(), " values; all must take the same context");
    size = layer->context_size();
  }
  return size;
}

Tensor context_for(const Layer& layer, const Tensor& context) { return layer.context_size() > 0 ? context : Tensor(); }

}  // namespace

Sequential::Sequential(const Options& options) : Sequential(build_all(options.layers)) {}

Sequential::Sequential(std::vector<LayerPtr> layers)
    : Layer(fitting(layers).front()->domain(), layers.back()->codomain(), common_context(layers)),
      layers_(std::move(layers)) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    register_module(std::to_string(i), layers_[i]);
    const bool narrows = layers_[i]->domain().size() > layers_[i]->codomain().size();
    if (i > 0 && narrows && layers_[i]->traits().injective) outer_ = i + 1;
  }
}

Traits Sequential::traits() const {
  Traits all{.constant_log_det = true};
  for (const auto& layer : layers_) all = all & layer->traits();
  if (outer_ > 0) all.constant_log_det = false;  // a volume depends on the tangents, which turn from point to point
  return all;
}

Json Sequential::spec() const {
  Options options;
  for (const auto& layer : layers_) options.layers.push_back(layer->spec());
  return write("sequential", options);
}

Mapped Sequential::map(const Tensor& x, const Tensor& context) {
  // The backward pass runs outside of a guard's scope: what it computes again would have all log_dets.
  if (memory_ != Memory::normal && outer_ == 0 && at::GradMode::is_enabled() &&
      ConstantLogDetGuard::current() == nullptr)
    return recomputing(layers_, x, context, memory_, inexact_);
  size_t first = 1;
  Mapped all;
  if (outer_ > 0) {
    all.value = x;
    for (first = 0; first < outer_; ++first)
      all.value = diffeo::forward_value(*layers_[first], all.value, context_for(*layers_[first], context));
    all.log_det = -immersed(all.value, context).log_det;
  } else {
    all = layers_.front()->forward(x, context_for(*layers_.front(), context));
  }
  for (size_t i = first; i < layers_.size(); ++i) {
    const auto step = layers_[i]->forward(all.value, context_for(*layers_[i], context));
    all.value = step.value;
    all.log_det = all.log_det + step.log_det;
  }
  return all;
}

Mapped Sequential::unmap(const Tensor& y, const Tensor& context) {
  Mapped all{y, {}};
  for (size_t i = layers_.size(); i-- > outer_;) {
    const auto step = layers_[i]->inverse(all.value, context_for(*layers_[i], context));
    all.value = step.value;
    all.log_det = all.log_det.defined() ? all.log_det + step.log_det : step.log_det;
  }
  if (outer_ == 0) return all;
  const auto [value, volume] = immersed(all.value, context);
  return {value, all.log_det.defined() ? all.log_det + volume : volume};
}

Scored Sequential::carry_score(const Tensor& points, const Tensor& score, const Tensor& context, Direction direction) {
  const bool forward = direction == Direction::forward;
  Scored here{points, {}, score};
  for (size_t i = 0; i < layers_.size(); ++i) {
    auto& layer = *layers_[forward ? i : layers_.size() - 1 - i];
    const auto given = context_for(layer, context);
    auto step = forward ? layer.forward_with_score(here.value, here.score, given)
                        : layer.inverse_with_score(here.value, here.score, given);
    if (here.log_det.defined()) step.log_det = here.log_det + step.log_det;
    here = step;
  }
  return here;
}

Mapped Sequential::immersed(const Tensor& z, const Tensor& context) {
  const auto push = [&](const Tensor& points, const Tensor& tangents, const Tensor& given) {
    Pushed pushed{points, tangents};
    for (size_t i = outer_; i-- > 0;)
      pushed = diffeo::push_inverse(*layers_[i], pushed.value, pushed.tangents, context_for(*layers_[i], given));
    return pushed;
  };
  return with_volume(push, z, context);
}

Tensor Sequential::forward_value(const Tensor& x, const Tensor& context) {
  auto value = x;
  for (const auto& layer : layers_) value = diffeo::forward_value(*layer, value, context_for(*layer, context));
  return value;
}

Tensor Sequential::inverse_value(const Tensor& y, const Tensor& context) {
  auto value = y;
  for (size_t i = layers_.size(); i-- > 0;)
    value = diffeo::inverse_value(*layers_[i], value, context_for(*layers_[i], context));
  return value;
}

Pushed Sequential::push_forward(const Tensor& x, const Tensor& tangents, const Tensor& context) {
  Pushed pushed{x, tangents};
  for (const auto& layer : layers_)
    pushed = diffeo::push_forward(*layer, pushed.value, pushed.tangents, context_for(*layer, context));
  return pushed;
}

Pushed Sequential::push_inverse(const Tensor& y, const Tensor& tangents, const Tensor& context) {
  Pushed pushed{y, tangents};
  for (size_t i = layers_.size(); i-- > 0;)
    pushed = diffeo::push_inverse(*layers_[i], pushed.value, pushed.tangents, context_for(*layers_[i], context));
  return pushed;
}

DIFFEO_LAYER(sequential, Sequential, "Layers one after another.",
    "y = f_n(... f_1(x)), log|det| = sum of theirs; with an injective layer, -1/2 log det J^T J of all up to it",
    "those of its layers; with an injective layer, d tangents through the inverses of the layers up to it",
    {"couplings", Json::parse(R"({"layers": [
       {"type": "coupling", "features": 3, "context": 2, "net": {"width": 8}},
       {"type": "coupling", "features": 3, "flip": true, "net": {"width": 8}}]})")},
    {"rectangular", Json::parse(R"({"layers": [
       {"type": "coupling", "features": 3, "flip": true, "net": {"width": 8, "activation": "tanh"}},
       {"type": "coupling", "features": 3, "net": {"width": 8, "activation": "tanh"}},
       {"type": "project", "features": 3, "latent": 2},
       {"type": "coupling", "features": 2, "net": {"width": 8, "activation": "tanh"}}]})")},
    {"standardized_free_form", Json::parse(R"({"layers": [
       {"type": "standardize", "features": 3, "shift": [0.1, -2.0, 3.0], "scale": [0.5, 3.0, 0.7]},
       {"type": "free_form", "features": 3, "latent": 1, "encoder": {"width": 8}, "decoder": {"width": 8}},
       {"type": "elementwise", "features": 1, "map": {"type": "affine"}}]})")});

}  // namespace diffeo
