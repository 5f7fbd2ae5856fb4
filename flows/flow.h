#pragma once

#include "diffeo/flows/distribution.h"
#include "diffeo/layers/nets/net.h"
#include "diffeo/layers/sequential/reversible.h"

namespace diffeo {

/// Points drawn from a flow, with its score there: the gradient of its log density.
struct DrawnWithScore {
  Tensor value;     ///< (*batch, *event), with its graph where gradients are enabled
  Tensor log_prob;  ///< (*batch), nats, without a graph
  Tensor score;     ///< (*batch, *event), d log_prob / d value, without a graph
};

/// The nearest that an injective flow has to points: where its encoder and decoder take them on its manifold.
struct Projection {
  Tensor value;     ///< (*batch, *event), on the manifold
  Tensor log_prob;  ///< (*batch), nats: the density at `value` with respect to the manifold's d-dimensional volume
  Tensor distance;  ///< (*batch), Euclidean, from the points to `value`
};

/// Layers that carry data to a base distribution: data goes forward through the layers.
///
///   log p(x | c) = log p_base(f(x; e), e) + log|det df/dx|,   e = embedding(s), s = context_layers(c); without them e
///   = c
///
/// A flow with random layers has a density only as an average over paths. log_prob refuses it and log_prob_bound bounds
/// it. What `draw` gives as log_prob is then that of the path, log p_base(z) - sum of the layers' log_dets from z to x:
/// for every unnormalised p, exp(log p(x) - log_prob) averages to the integral of p, and it is the importance weight of
/// x for p (samplers/weighted.h).
///
/// With an injective layer the density lives on a manifold of lower dimension. `log_prob` refuses points that are off
/// it (further than a thousandth of their length or, near to the origin, of the others'); `project` takes any. `draw`
/// gives points on it with their density there.
class Flow : public Distribution {
 public:
  /// Throws Error if the layers do not end in the base's space or its contexts differ. Random layers are taken: see
  /// above for what is then refused.
  Flow(LayerPtr layers, DistributionPtr base);
  /// With a network that turns a context of `context` values into the one that layers and base take.
  Flow(LayerPtr layers, DistributionPtr base, int64_t context, const NetOptions& embedding);

  /// Data to latent: z (*batch, D) and log|det dz/dx|.
  Mapped to_latent(const Tensor& x, const Tensor& context = {});
  /// Latent to data: x and log|det dx/dz|.
  Mapped to_data(const Tensor& z, const Tensor& context = {});

  /// Layers that a context goes through before anything sees it: they bring its values near to a standard normal, as
  /// the flow's first layers do with points. Throws Error unless they take and give as many real values.
  void set_context_layers(LayerPtr layers);
  /// The context that layers and base take, (*batch, C), made of the one that the flow takes.
  Tensor embedded(const Tensor& context);

  /// A lower bound of log p(x | c) in nats, (*batch): log of the mean of p_base(z) exp(sum of log_dets) over `paths`
  /// paths from x to the base. On average it grows with `paths`, towards log p(x | c); without random layers it is
  /// log p(x | c). Gradients flow. Burda et al. 2016, https://arxiv.org/abs/1509.00519, eq. 8.
  Tensor log_prob_bound(const Tensor& x, const Tensor& context = {}, int64_t paths = 1);

  /// As draw, with the score, in one pass (Layer::inverse_with_score): no layer is inverted for it.
  DrawnWithScore draw_with_score(at::IntArrayRef batch, const Tensor& context = {});
  /// As to_latent, with the score at z of the density that data have there, given `score`, that of their density at x.
  Scored to_latent_with_score(const Tensor& x, const Tensor& score, const Tensor& context = {});

  /// Points on the manifold of an injective flow, the density there, and how far off the points were. Of a flow of full
  /// dimension: the points, their density, and 0.
  Projection project(const Tensor& x, const Tensor& context = {});
  bool injective() const { return layers_->traits().injective; }

  /// What log_prob and to_latent keep of the layers for a backward pass (Memory::normal unless set). A way of running:
  /// neither a spec nor a model file has it.
  void set_memory(Memory memory);
  Memory memory() const;

  const LayerPtr& layers() const { return layers_; }
  const DistributionPtr& base() const { return base_; }
  /// `{"type": "flow", "layers": [...], "base": {...}}`, with "context" and "embedding", and "context_layers", where
  /// there are any.
  Json spec() const override;

 private:
  Tensor evaluate(const Tensor& x, const Tensor& context) override;
  Drawn simulate(at::IntArrayRef batch, const Tensor& context) override;

  LayerPtr layers_;
  DistributionPtr base_;
  NetOptions embedding_options_;
  NetPtr embedding_;
  LayerPtr context_layers_;
};

using FlowPtr = std::shared_ptr<Flow>;

/// Builds a flow from its spec. Throws SpecError that names the place of a mistake.
FlowPtr build_flow(const Json& spec);

}  // namespace diffeo
