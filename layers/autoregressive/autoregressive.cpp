#include "diffeo/layers/autoregressive/autoregressive.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include "diffeo/layers/base/registry.h"
#include "diffeo/layers/nets/made.h"

namespace diffeo {
namespace {

UnivariatePtr map_of(const Autoregressive::Options& options) {
  at_least(1, "features", options.features);
  const auto map = within("map", [&] { return build_univariate(options.map); });
  if (map->parameters() == 0) throw SpecError("map", "has no parameters for the network to make; use elementwise");
  if (!map->separable())
    throw SpecError("map",
                    "couples the features (volume preservation), so that they cannot be inverted one by one; "
                    "use coupling");
  return map;
}

Space space_of(const Autoregressive::Options& options, bool codomain) {
  const auto map = map_of(options);
  return Space::product(std::vector<Axis>(options.features, codomain ? map->codomain() : map->domain()));
}

}  // namespace

Autoregressive::Autoregressive(const Options& options)
    : Layer(space_of(options, false), space_of(options, true), options.context),
      options_(options),
      map_(map_of(options)) {
  const MadeShape shape{.degrees = feature_degrees(options.order, options.features, options.order_seed),
                        .context = options.context,
                        .outputs = map_->parameters(),
                        .periodic = map_->domain().circular};
  net_ = within("net", [&] { return build_made(options.net, shape, identities(*map_, options.features)); });
  register_module("net", net_);
  sequence_.resize(options.features);
  for (int64_t i = 0; i < options.features; ++i) sequence_[shape.degrees[i] - 1] = i;
}

Json Autoregressive::spec() const {
  auto options = options_;
  options.map = map_->spec();
  return write("autoregressive", options);
}

Tensor Autoregressive::parameters_from(const Tensor& x, const Tensor& context) {
  return net_->forward(x, context).unflatten(-1, {options_.features, map_->parameters()});
}

Mapped Autoregressive::map(const Tensor& x, const Tensor& context) {
  return map_->forward(x, parameters_from(x, context));
}

Mapped Autoregressive::unmap(const Tensor& y, const Tensor& context) {
  // Features not yet known are zeros, which no mask lets through to the parameters in use.
  std::vector<Tensor> columns(options_.features, at::zeros_like(y.narrow(-1, 0, 1)));
  Tensor log_det;
  for (const auto feature : sequence_) {
    const auto parameters = parameters_from(at::cat(columns, -1), context).narrow(-2, feature, 1);
    const auto [value, one] = map_->inverse(y.narrow(-1, feature, 1), parameters);
    columns[feature] = value;
    log_det = log_det.defined() ? log_det + one : one;
  }
  return {at::cat(columns, -1), log_det};
}

DIFFEO_LAYER(autoregressive, Autoregressive, "Maps each feature given those before it (Papamakarios et al. 2017).",
             {"affine", {{"features", 3}, {"net", {{"width", 8}}}}},
             {"one_feature", {{"features", 1}, {"net", {{"width", 8}}}}},
             {"one_feature_context", {{"features", 1}, {"context", 2}, {"net", {{"width", 8}}}}},
             {"context", Json::parse(R"({"features": 4, "context": 3, "order": "random", "order_seed": 3,
                                         "net": {"width": 8, "depth": 1}})")},
             {"residual_spline",
              Json::parse(R"({"features": 3, "order": "reverse", "map": {"type": "rq_spline", "bins": 4},
                                                 "net": {"type": "residual", "width": 8, "dropout": 0.1,
                                                         "batch_norm": true}})")},
             {"residual_context", Json::parse(R"({"features": 3, "context": 2,
                                                  "net": {"type": "residual", "width": 8, "activation": "tanh"}})")},
             {"circular", Json::parse(R"({"features": 3, "map": {"type": "rq_spline", "bins": 4, "tails": "circular"},
                                          "net": {"width": 8, "activation": "tanh"}})")},
             {"narrow", {{"features", 5}, {"net", {{"width", 2}, {"activation", "tanh"}}}}});

}  // namespace diffeo
