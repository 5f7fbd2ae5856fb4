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
  for (size_t i = 0; i < layers_.size(); ++i) register_module(std::to_string(i), layers_[i]);
}

Traits Sequential::traits() const {
  Traits all{.constant_log_det = true};
  for (const auto& layer : layers_) all = all & layer->traits();
  return all;
}

Json Sequential::spec() const {
  Options options;
  for (const auto& layer : layers_) options.layers.push_back(layer->spec());
  return write("sequential", options);
}

Mapped Sequential::map(const Tensor& x, const Tensor& context) {
  // The backward pass runs outside of a guard's scope: what it computes again would have all log_dets.
  if (memory_ != Memory::normal && at::GradMode::is_enabled() && ConstantLogDetGuard::current() == nullptr)
    return recomputing(layers_, x, context, memory_, inexact_);
  auto [value, log_det] = layers_.front()->forward(x, context_for(*layers_.front(), context));
  for (size_t i = 1; i < layers_.size(); ++i) {
    const auto step = layers_[i]->forward(value, context_for(*layers_[i], context));
    value = step.value;
    log_det = log_det + step.log_det;
  }
  return {value, log_det};
}

Mapped Sequential::unmap(const Tensor& y, const Tensor& context) {
  auto [value, log_det] = layers_.back()->inverse(y, context_for(*layers_.back(), context));
  for (size_t i = layers_.size() - 1; i-- > 0;) {
    const auto step = layers_[i]->inverse(value, context_for(*layers_[i], context));
    value = step.value;
    log_det = log_det + step.log_det;
  }
  return {value, log_det};
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

DIFFEO_LAYER(sequential, Sequential, "Layers one after another.", "y = f_n(... f_1(x)), log|det| = sum of theirs", "those of its layers",
    {"couplings", Json::parse(R"({"layers": [
       {"type": "coupling", "features": 3, "context": 2, "net": {"width": 8}},
       {"type": "coupling", "features": 3, "flip": true, "net": {"width": 8}}]})")});

}  // namespace diffeo
