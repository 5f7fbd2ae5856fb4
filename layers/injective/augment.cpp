#include "diffeo/layers/injective/augment.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <numbers>

#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

constexpr double largest_log_scale = 3;  ///< of what the network adds to the log of the scale, either way

/// Standard normal, (*batch).
Tensor normal_log_prob(const Tensor& z) {
  return -0.5 * z.square().sum(-1) - 0.5 * std::log(2 * std::numbers::pi) * static_cast<double>(z.size(-1));
}

}  // namespace

Augment::Augment(const Options& options)
    : Layer(Space::reals(at_least(1, "features", options.features)),
            Space::reals(options.features + at_least(1, "noise", options.noise)),
            at_least(0, "context", options.context)),
      options_(options) {
  if (!std::isfinite(options.scale) || !(options.scale > 0))
    throw SpecError("scale", c10::str("must be above 0, got ", options.scale));
  if (options.net.is_null()) {
    if (options.context > 0) throw SpecError("context", "is for the network that makes the noise; give one, or 0");
    return;
  }
  net_options_ = read<NetOptions>(options.net, "net");
  net_ = register_module("net", within("net", [&] {
                           return build_net(net_options_, options.features, options.context, 2 * options.noise);
                         }));
}

Json Augment::spec() const {
  auto options = options_;
  if (net_) options.net = write(net_options_);
  return write("augment", options);
}

Augment::Noise Augment::noise_at(const Tensor& x, const Tensor& context) const {
  auto shape = x.sizes().vec();
  shape.back() = options_.noise;
  const double start = std::log(options_.scale);
  if (!net_) return {at::zeros(shape, x.options()), at::full(shape, start, x.options())};
  const auto parameters = net_->forward(x, context).split(options_.noise, -1);
  return {parameters[0], start + largest_log_scale * (parameters[1] / largest_log_scale).tanh()};
}

Mapped Augment::map(const Tensor& x, const Tensor& context) {
  const auto [mean, log_scale] = noise_at(x, context);
  const auto z = at::randn(mean.sizes(), x.options());
  return {at::cat({x, mean + log_scale.exp() * z}, -1), log_scale.sum(-1) - normal_log_prob(z)};
}

Mapped Augment::unmap(const Tensor& y, const Tensor& context) {
  const auto x = y.narrow(-1, 0, options_.features);
  const auto [mean, log_scale] = noise_at(x, context);
  const auto z = (y.narrow(-1, options_.features, options_.noise) - mean) * (-log_scale).exp();
  return {x, normal_log_prob(z) - log_scale.sum(-1)};
}

DIFFEO_LAYER(augment, Augment,
             "Features of noise beside those of the data; the inverse drops them (Huang et al. 2020).",
             "y = (x, e), e = m(x) + s(x) n, n ~ N(0, 1); log_det = -log q(e | x) = sum log s - log N(n)",
             "that of the network", {"fixed", {{"features", 2}, {"noise", 1}, {"scale", 1.1}}},
             {"learned", Json::parse(R"({"features": 2, "noise": 2, "scale": 1.1,
                                         "net": {"width": 4, "depth": 1, "activation": "tanh"}})")});

}  // namespace diffeo
