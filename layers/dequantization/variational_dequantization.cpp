#include "diffeo/layers/dequantization/variational_dequantization.h"

#include <ATen/ops/randn_like.h>
#include <ATen/ops/special_ndtr.h>
#include <ATen/ops/special_ndtri.h>

#include <cmath>
#include <numbers>

#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

/// u stays this far from 0 and 1: x + u has to round down to x again in float32, for x up to 255.
constexpr double margin = 1.0 / (1 << 15);

Space space_of(const VariationalDequantization::Options& options) {
  if (!(options.values >= 2)) throw SpecError("values", c10::str("must be at least 2, got ", options.values));
  return Space::reals(at_least(1, "features", options.features));
}

Tensor normal_log_prob(const Tensor& z) { return -0.5 * (z.square() + std::log(2 * std::numbers::pi)).sum(-1); }

}  // namespace

VariationalDequantization::VariationalDequantization(const Options& options)
    : Layer(space_of(options)), options_(options) {
  for (size_t i = 0; i < options.layers.size(); ++i) {
    const auto place = c10::str("layers/", i);
    layers_.push_back(within(place, [&] { return build_layer(options.layers[i]); }));
    const auto& layer = *layers_.back();
    const auto& before = i == 0 ? domain() : layers_[i - 1]->codomain();
    if (!layer.domain().same_as(before))
      throw SpecError(
          place, c10::str("starts from ", to_string(layer.domain()), ", but what comes to it is ", to_string(before)));
    if (layer.context_size() != 0 && layer.context_size() != options.features)
      throw SpecError(place, c10::str("takes a context of ", layer.context_size(), " values; the data are one of ",
                                      options.features));
    register_module(std::to_string(i), layers_.back());
  }
  if (!layers_.empty() && !layers_.back()->codomain().same_as(codomain()))
    throw SpecError("layers",
                    c10::str("end in ", to_string(layers_.back()->codomain()), ", not in ", to_string(codomain())));
}

Json VariationalDequantization::spec() const {
  auto options = options_;
  options.layers.clear();
  for (const auto& layer : layers_) options.layers.push_back(layer->spec());
  return write("variational_dequantization", options);
}

Tensor VariationalDequantization::seen(const Tensor& x) const { return (x + 0.5) * (2 / options_.values) - 1; }

Mapped VariationalDequantization::map(const Tensor& x, const Tensor&) {
  const auto context = seen(x);
  const auto noise = at::randn_like(x);
  auto value = noise;
  auto log_det = -normal_log_prob(noise);
  for (size_t i = layers_.size(); i-- > 0;) {
    const auto step = layers_[i]->inverse(value, layers_[i]->context_size() > 0 ? context : Tensor());
    value = step.value;
    log_det = log_det + step.log_det;
  }
  return {x + at::special_ndtr(value).clamp(margin, 1 - margin), log_det + normal_log_prob(value)};
}

Mapped VariationalDequantization::unmap(const Tensor& y, const Tensor&) {
  const auto x = y.floor();
  const auto context = seen(x);
  auto value = at::special_ndtri((y - x).clamp(margin, 1 - margin));
  auto log_det = -normal_log_prob(value);
  for (const auto& layer : layers_) {
    const auto step = layer->forward(value, layer->context_size() > 0 ? context : Tensor());
    value = step.value;
    log_det = log_det + step.log_det;
  }
  return {x, log_det + normal_log_prob(value)};
}

DIFFEO_LAYER(variational_dequantization, VariationalDequantization,
             "Learned noise in (0, 1) on whole numbers (Ho et al. 2019).",
             "y = x + Phi(l), l = layers^-1(e; x), e ~ N(0, 1); log_det = log N(l) + log|det dl/de| - log N(e)",
             "that of the layers", {"uniform", {{"features", 3}}},
             {"coupling", Json::parse(R"({"features": 2, "values": 16, "layers": [
                {"type": "coupling", "features": 2, "context": 2, "net": {"width": 4, "activation": "tanh"}}]})")});

}  // namespace diffeo
