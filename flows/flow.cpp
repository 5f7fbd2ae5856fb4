#include "diffeo/flows/flow.h"

#include <ATen/ops/maximum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "diffeo/flows/score.h"
#include "diffeo/layers/base/tangents.h"
#include "diffeo/layers/sequential/sequential.h"

namespace diffeo {
namespace {

struct FlowOptions {
  std::vector<Json> layers;
  Json base;
  int64_t context = 0;
  Json embedding = nullptr;
  std::vector<Json> context_layers;
  static constexpr auto fields() {
    using O = FlowOptions;
    return std::tuple{required("layers", &O::layers, "list of layer specs, the one nearest to the data first"),
                      required("base", &O::base, "spec of the base distribution"),
                      optional("context", &O::context, "size of the context that the embedding network takes"),
                      optional("embedding", &O::embedding, "network from the context to that of the layers, or null"),
                      optional("context_layers", &O::context_layers,
                               "list of layer specs that a context goes through first, e.g. standardize")};
  }
};

int64_t inner_context(const Layer& layers, const Distribution& base) {
  check(layers.context_size() == 0 || base.context_size() == 0 || layers.context_size() == base.context_size(),
        "flow: the layers take a context of ", layers.context_size(), " values but the base one of ",
        base.context_size());
  return std::max(layers.context_size(), base.context_size());
}

/// The layers as a Sequential: a spec has a list of them, and names of tensors follow it.
LayerPtr as_list(LayerPtr layers) {
  if (dynamic_cast<const Sequential*>(layers.get())) return layers;
  return std::make_shared<Sequential>(std::vector<LayerPtr>{std::move(layers)});
}

/// Throws Error unless all points are on the manifold that they were projected to, up to a part of their scale.
void check_on_manifold(const Tensor& x, const Tensor& distance, int64_t event_dimensions) {
  constexpr double tolerance = 1e-3;
  if (x.numel() == 0) return;
  const auto length = x.detach().flatten(-event_dimensions).norm(2, -1);
  // A point near the origin has no scale of its own.
  const auto off = distance > tolerance * at::maximum(length, length.square().mean().sqrt());
  const auto count = off.sum().item<int64_t>();
  check(count == 0, "flow: log_prob: ", count, " of ", distance.numel(),
        " points are off the manifold of this injective flow, by up to ", distance.max().item<double>(),
        " (allowed is ", tolerance,
        " of their scale); project gives the density at their projections and the distance to them");
}

}  // namespace

Flow::Flow(LayerPtr layers, DistributionPtr base)
    : Distribution(layers->domain(), inner_context(*layers, *base)),
      layers_(as_list(std::move(layers))),
      base_(std::move(base)) {
  check(layers_->codomain().same_as(base_->space()), "flow: the layers end in ", to_string(layers_->codomain()),
        " but the base lives on ", to_string(base_->space()));
  register_module("layers", layers_);
  register_module("base", base_);
}

Flow::Flow(LayerPtr layers, DistributionPtr base, int64_t context, const NetOptions& embedding)
    : Distribution(layers->domain(), context),
      layers_(as_list(std::move(layers))),
      base_(std::move(base)),
      embedding_options_(embedding) {
  check(layers_->codomain().same_as(base_->space()), "flow: the layers end in ", to_string(layers_->codomain()),
        " but the base lives on ", to_string(base_->space()));
  const auto inner = inner_context(*layers_, *base_);
  check(context > 0 && inner > 0, "flow: an embedding needs a context, and layers or a base that take one");
  register_module("layers", layers_);
  register_module("base", base_);
  embedding_ =
      register_module("embedding", within("embedding", [&] { return build_net(embedding, context, 0, inner); }));
}

void Flow::set_memory(Memory memory) { static_cast<Sequential&>(*layers_).set_memory(memory); }
Memory Flow::memory() const { return static_cast<const Sequential&>(*layers_).memory(); }

void Flow::set_context_layers(LayerPtr layers) {
  check(!context_layers_, "flow: the layers of the context are set already");
  check(context_size() > 0, "flow: layers of the context need a flow that takes one");
  check(layers->domain().same_as(Space::reals(context_size())) && layers->codomain().size() == context_size() &&
            layers->context_size() == 0,
        "flow: expected layers from a context of ", context_size(), " real values to as many, got ",
        to_string(layers->domain()), " to ", to_string(layers->codomain()));
  context_layers_ = register_module("context_layers", as_list(std::move(layers)));
}

Tensor Flow::embedded(const Tensor& context) {
  const auto seen = context_layers_ && context.defined() ? context_layers_->forward(context).value : context;
  return embedding_ ? embedding_->forward(seen) : seen;
}

Mapped Flow::to_latent(const Tensor& x, const Tensor& context) {
  return layers_->forward(x, layers_->context_size() > 0 ? embedded(context) : Tensor());
}

Mapped Flow::to_data(const Tensor& z, const Tensor& context) {
  return layers_->inverse(z, layers_->context_size() > 0 ? embedded(context) : Tensor());
}

Tensor Flow::log_prob_bound(const Tensor& x, const Tensor& context, int64_t paths) {
  check(paths >= 1, "flow: expected at least 1 path, got ", paths);
  if (!layers_->traits().random) return log_prob(x, context);
  const auto inner = embedded(context);  // once for all paths
  const auto for_layers = layers_->context_size() > 0 ? inner : Tensor(),
             for_base = base_->context_size() > 0 ? inner : Tensor();
  std::vector<Tensor> all;
  for (int64_t i = 0; i < paths; ++i) {
    const auto [z, log_det] = layers_->forward(x, for_layers);
    all.push_back(base_->log_prob(z, for_base) + log_det);
  }
  return at::stack(all).logsumexp(0) - std::log(static_cast<double>(paths));
}

DrawnWithScore Flow::draw_with_score(at::IntArrayRef batch, const Tensor& context) {
  const auto inner = embedded(context);
  const auto of_base = base_->context_size() > 0 ? inner : Tensor();
  const auto [z, log_prob] = base_->draw(batch, of_base);
  const auto score = score_of(*base_, z, of_base).gradient;
  const auto there = layers_->inverse_with_score(z, score, layers_->context_size() > 0 ? inner : Tensor());
  return {there.value, log_prob.detach() - there.log_det, there.score};
}

Scored Flow::to_latent_with_score(const Tensor& x, const Tensor& score, const Tensor& context) {
  return layers_->forward_with_score(x, score, layers_->context_size() > 0 ? embedded(context) : Tensor());
}

Projection Flow::project(const Tensor& x, const Tensor& context) {
  const auto events = static_cast<int64_t>(space().event.size());
  if (!injective()) {
    const auto log_probs = log_prob(x, context);
    return {x, log_probs, at::zeros_like(log_probs)};
  }
  const auto inner = embedded(context);
  const auto for_layers = layers_->context_size() > 0 ? inner : Tensor();
  const auto [z, log_det] = layers_->forward(x, for_layers);
  const auto value = inverse_value(*layers_, z, for_layers);
  const auto log_prob = base_->log_prob(z, base_->context_size() > 0 ? inner : Tensor()) + log_det;
  return {value, log_prob, (value - x).flatten(-events).norm(2, -1)};
}

Tensor Flow::evaluate(const Tensor& x, const Tensor& context) {
  const auto traits = layers_->traits();
  check(!traits.random,
        "flow: has random layers, so that its density is an average over paths that nothing evaluates; "
        "log_prob_bound gives a lower bound, draw the weights of paths");
  if (traits.injective) {
    const auto projection = project(x, context);
    check_on_manifold(x, projection.distance.detach(), static_cast<int64_t>(space().event.size()));
    return projection.log_prob;
  }
  const auto inner = embedded(context);
  const auto [z, log_det] = layers_->forward(x, layers_->context_size() > 0 ? inner : Tensor());
  return base_->log_prob(z, base_->context_size() > 0 ? inner : Tensor()) + log_det;
}

Drawn Flow::simulate(at::IntArrayRef batch, const Tensor& context) {
  const auto inner = embedded(context);
  const auto [z, log_prob] = base_->draw(batch, base_->context_size() > 0 ? inner : Tensor());
  const auto [x, log_det] = layers_->inverse(z, layers_->context_size() > 0 ? inner : Tensor());
  return {x, log_prob - log_det};
}

Json Flow::spec() const {
  FlowOptions options;
  for (const auto& layer : static_cast<const Sequential&>(*layers_).layers()) options.layers.push_back(layer->spec());
  options.base = base_->spec();
  if (embedding_) {
    options.context = context_size();
    options.embedding = write(embedding_options_);
  }
  if (context_layers_)
    for (const auto& layer : static_cast<const Sequential&>(*context_layers_).layers())
      options.context_layers.push_back(layer->spec());
  return write("flow", options);
}

FlowPtr build_flow(const Json& spec) {
  const auto options = read<FlowOptions>(spec);
  auto layers = std::make_shared<Sequential>(Sequential::Options{options.layers});
  auto base = within("base", [&] { return build_distribution(options.base); });
  FlowPtr flow;
  if (options.embedding.is_null()) {
    flow = std::make_shared<Flow>(layers, base);
    if (options.context != 0 && options.context != flow->context_size())
      throw SpecError("context", c10::str("the layers take a context of ", flow->context_size(), " values, not ",
                                          options.context, "; give an embedding to change its size"));
  } else {
    flow = std::make_shared<Flow>(layers, base, options.context, read<NetOptions>(options.embedding, "embedding"));
  }
  if (!options.context_layers.empty())
    flow->set_context_layers(within("context_layers", [&] {
      // A Sequential names places as layers/0; here the list itself is the place.
      std::vector<LayerPtr> list;
      for (size_t i = 0; i < options.context_layers.size(); ++i)
        list.push_back(within(std::to_string(i), [&] { return build_layer(options.context_layers[i]); }));
      return std::make_shared<Sequential>(std::move(list));
    }));
  return flow;
}

}  // namespace diffeo
