#pragma once

#include "diffeo/flows/distribution.h"
#include "diffeo/layers/nets/net.h"
#include "diffeo/layers/sequential/reversible.h"

namespace diffeo {

/// The nearest that an injective flow has to points: where its encoder and decoder take them on its manifold.
struct Projection {
  Tensor value;     ///< (*batch, *event), on the manifold
  Tensor log_prob;  ///< (*batch), nats: the density at `value` with respect to the manifold's d-dimensional volume
  Tensor distance;  ///< (*batch), Euclidean, from the points to `value`
};

/// Layers that carry data to a base distribution: data goes forward through the layers.
///
///   log p(x | c) = log p_base(f(x; e), e) + log|det df/dx|,   e = embedding(c), or c itself
///
/// With an injective layer the density lives on a manifold of lower dimension. `log_prob` refuses points that are off
/// it (further than a thousandth of their length or, near to the origin, of the others'); `project` takes any. `draw`
/// gives points on it with their density there.
class Flow : public Distribution {
 public:
  /// Throws Error if the layers do not end in the base's space or its contexts differ, or if a layer has no density
  /// to evaluate (random or estimated layers).
  Flow(LayerPtr layers, DistributionPtr base);
  /// With a network that turns a context of `context` values into the one that layers and base take.
  Flow(LayerPtr layers, DistributionPtr base, int64_t context, const NetOptions& embedding);

  /// Data to latent: z (*batch, D) and log|det dz/dx|.
  Mapped to_latent(const Tensor& x, const Tensor& context = {});
  /// Latent to data: x and log|det dx/dz|.
  Mapped to_data(const Tensor& z, const Tensor& context = {});

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
  /// `{"type": "flow", "layers": [...], "base": {...}}`, with "context" and "embedding" where there is one.
  Json spec() const override;

 private:
  Tensor evaluate(const Tensor& x, const Tensor& context) override;
  Drawn simulate(at::IntArrayRef batch, const Tensor& context) override;
  Tensor embedded(const Tensor& context);

  LayerPtr layers_;
  DistributionPtr base_;
  NetOptions embedding_options_;
  NetPtr embedding_;
};

using FlowPtr = std::shared_ptr<Flow>;

/// Builds a flow from its spec. Throws SpecError that names the place of a mistake.
FlowPtr build_flow(const Json& spec);

}  // namespace diffeo
