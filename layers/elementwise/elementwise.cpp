#include "diffeo/layers/elementwise/elementwise.h"

#include <ATen/ops/tensor.h>

#include "diffeo/layers/base/registry.h"
#include "diffeo/layers/base/score.h"

namespace diffeo {
namespace {

UnivariatePtr map_of(const Elementwise::Options& options) {
  at_least(1, "features", options.features);
  return within("map", [&] { return build_univariate(options.map); });
}

Space space_of(const Elementwise::Options& options, bool codomain) {
  const auto map = map_of(options);
  return Space::product(std::vector<Axis>(options.features, codomain ? map->codomain() : map->domain()));
}

}  // namespace

Elementwise::Elementwise(const Options& options)
    : Layer(space_of(options, false), space_of(options, true), options.context),
      options_(options),
      map_(map_of(options)) {
  if (map_->parameters() == 0) {
    if (options.context > 0)
      throw SpecError("context", "the map has no parameters that a context could change; set it to 0");
    return;
  }
  const auto start = identities(*map_, options.features);
  if (options.context > 0) {
    const auto outputs = static_cast<int64_t>(start.size());
    net_ = within("net", [&] { return build_net(options.net, options.context, 0, outputs, start); });
    register_module("net", net_);
  } else {
    parameters_ =
        register_parameter("parameters", at::tensor(start, at::kFloat).view({options.features, map_->parameters()}));
  }
}

Json Elementwise::spec() const {
  auto options = options_;
  options.map = map_->spec();
  return write("elementwise", options);
}

Tensor Elementwise::parameters_for(const Tensor& context) {
  return net_ ? net_->forward(context).unflatten(-1, {options_.features, map_->parameters()}) : parameters_;
}

Mapped Elementwise::map(const Tensor& x, const Tensor& context) { return map_->forward(x, parameters_for(context)); }

Mapped Elementwise::unmap(const Tensor& y, const Tensor& context) { return map_->inverse(y, parameters_for(context)); }

Scored Elementwise::carry_score(const Tensor& points, const Tensor& score, const Tensor& context, Direction direction) {
  const auto [mapped, carried, unused] =
      carry_features(*map_, points, parameters_for(context), score, direction, /*want_parameters=*/false);
  return {mapped.value, mapped.log_det, carried};
}

DIFFEO_LAYER(elementwise, Elementwise, "Maps each feature on its own.", "y_i = m(x_i; h_i(c)), log|det| = sum_i log|m'(x_i)|", "D both ways, and a pass of the network where there is a context", {"one_feature", {{"features", 1}}},
             {"context", {{"features", 3}, {"context", 2}, {"net", {{"width", 8}}}}},
             {"spline_of_context",
              {{"features", 2},
               {"context", 3},
               {"map", {{"type", "rq_spline"}, {"bins", 4}}},
               {"net", {{"type", "residual"}, {"width", 8}, {"depth", 1}}}}});

}  // namespace diffeo
