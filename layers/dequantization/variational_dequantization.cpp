#include "diffeo/layers/dequantization/variational_dequantization.h"

#include <ATen/ops/randn_like.h>
#include <ATen/ops/special_ndtr.h>
#include <ATen/ops/special_ndtri.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

Space space_of(const VariationalDequantization::Options& options) {
  if (!(options.values >= 2 && options.values <= 65536))
    throw SpecError("values", c10::str("must be 2 to 65536, got ", options.values));
  return Space::reals(at_least(1, "features", options.features));
}

Tensor normal_log_prob(const Tensor& z) { return -0.5 * (z.square() + std::log(2 * std::numbers::pi)).sum(-1); }

}  // namespace

VariationalDequantization::VariationalDequantization(const Options& options)
    : Layer(space_of(options)), options_(options) {
  if (options.layers.empty()) return;
  auto layers = build_layer({{"type", "sequential"}, {"layers", options.layers}});
  for (const auto* end : {&layers->domain(), &layers->codomain()})
    if (!end->same_as(domain()))
      throw SpecError("layers", c10::str("go from ", to_string(layers->domain()), " to ", to_string(layers->codomain()),
                                         "; both must be ", to_string(domain())));
  if (layers->context_size() != 0 && layers->context_size() != options.features)
    throw SpecError("layers", c10::str("take a context of ", layers->context_size(), " values; the data are one of ",
                                       options.features));
  layers_ = register_module("layers", std::move(layers));
}

Json VariationalDequantization::spec() const {
  auto options = options_;
  if (layers_) options.layers = layers_->spec()["layers"].get<std::vector<Json>>();
  return write("variational_dequantization", options);
}

double VariationalDequantization::margin() const { return std::max(options_.values, 256.0) / (1 << 23); }

Tensor VariationalDequantization::context_of(const Tensor& x) const {
  if (!layers_ || layers_->context_size() == 0) return {};
  return (x + 0.5) * (2 / options_.values) - 1;
}

Mapped VariationalDequantization::map(const Tensor& x, const Tensor&) {
  const auto noise = at::randn_like(x);
  if (!layers_)
    return {x + at::special_ndtr(noise).clamp(margin(), 1 - margin()), x.new_zeros(x.sizes().slice(0, x.dim() - 1))};
  const auto [value, log_det] = layers_->inverse(noise, context_of(x));
  return {x + at::special_ndtr(value).clamp(margin(), 1 - margin()),
          log_det + normal_log_prob(value) - normal_log_prob(noise)};
}

Mapped VariationalDequantization::unmap(const Tensor& y, const Tensor&) {
  const auto x = y.floor();
  if (!layers_) return {x, x.new_zeros(x.sizes().slice(0, x.dim() - 1))};
  const auto noise = at::special_ndtri((y - x).clamp(margin(), 1 - margin()));
  const auto [value, log_det] = layers_->forward(noise, context_of(x));
  return {x, log_det + normal_log_prob(value) - normal_log_prob(noise)};
}

DIFFEO_LAYER(variational_dequantization, VariationalDequantization,
             "Learned noise in (0, 1) on whole numbers (Ho et al. 2019).",
             "y = x + Phi(l), l = layers^-1(e; x), e ~ N(0, 1); log_det = log N(l) + log|det dl/de| - log N(e)",
             "that of the layers", {"uniform", {{"features", 3}}},
             {"coupling", Json::parse(R"({"features": 2, "values": 16, "layers": [
                {"type": "coupling", "features": 2, "context": 2, "net": {"width": 4, "activation": "tanh"}}]})")});

}  // namespace diffeo
