#include "diffeo/layers/coupling/coupling.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "diffeo/layers/base/random_order.h"
#include "diffeo/layers/base/registry.h"
#include "diffeo/layers/base/score.h"
#include "diffeo/layers/coupling/features.h"

namespace diffeo {
namespace {

/// True for the features that are kept.
std::vector<bool> kept_features(const Coupling::Options& options) {
  const auto features = options.features;
  std::vector<bool> kept(features);
  if (options.mask == "random") {
    const auto order = random_order(features, options.mask_seed);
    for (int64_t i = 0; i < features / 2; ++i) kept[order[i]] = true;
  } else {
    for (int64_t i = 0; i < features; ++i) kept[i] = options.mask == "half" ? i < features / 2 : i % 2 == 0;
  }
  if (options.flip) kept.flip();
  return kept;
}

UnivariatePtr build_kept(const Json& spec) {
  return spec.is_null() ? nullptr : within("kept_map", [&] { return build_univariate(spec); });
}

Space space_of(const Coupling::Options& options, bool codomain) {
  if (options.features < 2)
    throw SpecError("features", c10::str("must be at least 2, got ", options.features,
                                         "; use the elementwise layer for one feature"));
  check_choice("mask", options.mask, {"half", "alternating", "random"});
  const auto map = within("map", [&] { return build_univariate(options.map); });
  const auto kept_map = build_kept(options.kept_map);
  const auto& kept_axis_of = kept_map ? *kept_map : *map;
  check(map->domain().same_as(kept_axis_of.domain()), "map lives on ", to_string(map->domain()), " but kept_map on ",
        to_string(kept_axis_of.domain()), "; both must live on the same axis");
  check(kept_map || map->domain().same_as(map->codomain()), "map goes from ", to_string(map->domain()), " to ",
        to_string(map->codomain()), "; a coupling needs a kept_map that does the same to the kept features");
  check(map->codomain().same_as(kept_axis_of.codomain()), "map ends in ", to_string(map->codomain()),
        " but kept_map in ", to_string(kept_axis_of.codomain()), "; both must end in the same axis");
  return Space::product(std::vector<Axis>(options.features, codomain ? map->codomain() : map->domain()));
}

}  // namespace

Coupling::Coupling(const Options& options)
    : Layer(space_of(options, false), space_of(options, true), options.context), options_(options) {
  plan_ = c10::make_intrusive<coupling::Plan>();
  plan_->map = build_univariate(options.map);
  plan_->kept_map = build_kept(options.kept_map);
  if (plan_->map->parameters() == 0)
    throw SpecError("map", "has no parameters for the network to make; use elementwise");

  const auto mask = kept_features(options);
  std::vector<int64_t> kept, moved;
  for (int64_t i = 0; i < options.features; ++i) (mask[i] ? kept : moved).push_back(i);
  plan_->kept = register_buffer("kept", at::tensor(kept));
  plan_->moved = register_buffer("moved", at::tensor(moved));
  const auto inputs = static_cast<int64_t>(kept.size()) * (plan_->map->domain().circular ? 2 : 1);
  const auto outputs = static_cast<int64_t>(moved.size()) * plan_->map->parameters();
  net_ = within("net", [&] {
    return build_net(options.net, inputs, options.context, outputs,
                     identities(*plan_->map, static_cast<int64_t>(moved.size())));
  });
  register_module("net", net_);
  if (plan_->kept_map) {
    const auto start = at::tensor(identities(*plan_->kept_map, static_cast<int64_t>(kept.size())), at::kFloat);
    kept_parameters_ = register_parameter(
        "kept_parameters", start.view({static_cast<int64_t>(kept.size()), plan_->kept_map->parameters()}));
  }
}

Traits Coupling::traits() const {
  return plan_->kept_map ? plan_->map->traits() & plan_->kept_map->traits() : plan_->map->traits();
}

Json Coupling::spec() const {
  auto options = options_;
  options.map = plan_->map->spec();
  if (plan_->kept_map) options.kept_map = plan_->kept_map->spec();
  return write("coupling", options);
}

Tensor Coupling::parameters_from(const Tensor& kept, const Tensor& context) {
  const auto features = plan_->map->domain().circular ? at::cat({kept.cos(), kept.sin()}, -1) : kept;
  return net_->forward(features, context).unflatten(-1, {plan_->moved.size(0), plan_->map->parameters()});
}

Mapped Coupling::apply(const Tensor& x, const Tensor& context, bool inverse) {
  // Without gradients there is nothing that a node would save, and the network goes by blocks of rows.
  if (at::GradMode::is_enabled())
    if (const auto form = net_->dense_form(context.defined()); form && coupling::fused(*plan_, form->shape, x))
      return coupling::apply(plan_, form->shape, x, context, kept_parameters_, form->parameters, inverse);
  const auto network = [&](const Tensor& kept) { return parameters_from(kept, context); };
  return coupling::composed(*plan_, x, kept_parameters_, network, inverse);
}

Mapped Coupling::map(const Tensor& x, const Tensor& context) { return apply(x, context, false); }

Mapped Coupling::unmap(const Tensor& y, const Tensor& context) { return apply(y, context, true); }

Retraced Coupling::unmap_and_map(const Tensor& y, const Tensor& context) {
  // The network is what costs most, and both directions ask it the same: it is applied once, with its graph.
  auto x = y.detach();
  const auto [y_kept, y_moved] = split_features(x, plan_->kept, plan_->moved);
  if (plan_->kept_map) {
    torch::NoGradGuard no_grad;
    x = join_features(plan_->kept_map->inverse(y_kept, kept_parameters_).value, y_moved, plan_->kept, plan_->moved);
  }
  x.requires_grad_();
  const auto kept = split_features(x, plan_->kept, plan_->moved).first;
  const auto parameters = parameters_from(kept, context);
  {
    // What is to move is still the value. Its inverse takes its place; the graph, which saw the kept ones, did not.
    torch::NoGradGuard no_grad;
    x.set_data(join_features(kept, plan_->map->inverse(y_moved, parameters).value, plan_->kept, plan_->moved));
  }
  return {x, coupling::composed(
                 *plan_, x, kept_parameters_, [&](const Tensor&) { return parameters; }, false)};
}

Scored Coupling::carry_score(const Tensor& points, const Tensor& score, const Tensor& context, Direction direction) {
  auto [kept, to_move] = split_features(points, plan_->kept, plan_->moved);
  auto [kept_score, score_to_move] = split_features(score, plan_->kept, plan_->moved);
  ScoredFeatures kept_after;
  const auto map_kept = [&] {
    kept_after =
        carry_features(*plan_->kept_map, kept, kept_parameters_, kept_score, direction, /*want_parameters=*/false);
    kept = kept_after.mapped.value;
    kept_score = kept_after.score;
  };
  // The network reads the kept features as they are on the side of the domain.
  const bool first = plan_->kept_map && direction == Direction::inverse;
  if (first) map_kept();
  const auto parameters = parameters_from(kept, context);
  const auto moved =
      carry_features(*plan_->map, to_move, parameters, score_to_move, direction, /*want_parameters=*/true);
  kept_score = kept_score - pulled_back({parameters}, {moved.by_parameters}, kept);
  if (plan_->kept_map && !first) map_kept();
  const auto log_det = plan_->kept_map ? kept_after.mapped.log_det + moved.mapped.log_det : moved.mapped.log_det;
  return {join_features(kept, moved.mapped.value, plan_->kept, plan_->moved), log_det,
          join_features(kept_score, moved.score, plan_->kept, plan_->moved)};
}

DIFFEO_LAYER(coupling, Coupling, "Maps some features by a map conditioned on the others (Dinh et al. 2017).", "y_a = k(x_a), y_b = m(x_b; h(x_a, c)), log|det| = sum_b log|m'(x_b)| + sum_a log|k'(x_a)|", "one pass of the network both ways",
             {"affine", {{"features", 2}, {"net", {{"width", 8}}}}},
             {"context", {{"features", 5}, {"context", 3}, {"net", {{"width", 8}}}}},
             {"alternating_residual",
              {{"features", 4},
               {"mask", "alternating"},
               {"flip", true},
               {"net", {{"type", "residual"}, {"width", 8}, {"depth", 1}}}}},
             {"random_kept_map",
              {{"features", 5},
               {"mask", "random"},
               {"kept_map", {{"type", "affine"}}},
               {"net", {{"width", 8}, {"activation", "tanh"}}}}});

}  // namespace diffeo
