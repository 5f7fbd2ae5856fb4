#pragma once

#include "diffeo/layers/base/tangents.h"
#include "diffeo/layers/sequential/reversible.h"

namespace diffeo {

/// Layers applied one after another, the first one first. Its log_det is the sum of theirs.
///
/// Layers that take a context all take the same one. Each layer's codomain must be the next one's domain:
/// a density would not integrate to 1 otherwise.
///
/// With an injective layer among them, log_det is that of the composition: the volume 1/2 log det J^T J of all layers
/// up to the last injective one, whose Jacobian is d tangents carried through their inverses, and the sum of the
/// others' log_det. The sum alone would be wrong: what an outer layer does to a volume depends on the tangents of the
/// manifold.
class Sequential : public Layer, public CarriesTangents {
 public:
  struct Options {
    std::vector<Json> layers;
    static constexpr auto fields() {
      return std::tuple{required("layers", &Options::layers, "list of layer specs, the one nearest to the data first")};
    }
  };

  explicit Sequential(const Options& options);
  /// Throws Error if there is no layer, or if two neighbours do not fit, naming both.
  explicit Sequential(std::vector<LayerPtr> layers);

  const std::vector<LayerPtr>& layers() const { return layers_; }
  Traits traits() const override;
  Json spec() const override;

  Tensor forward_value(const Tensor& x, const Tensor& context) override;
  Tensor inverse_value(const Tensor& y, const Tensor& context) override;
  Pushed push_forward(const Tensor& x, const Tensor& tangents, const Tensor& context) override;
  Pushed push_inverse(const Tensor& y, const Tensor& tangents, const Tensor& context) override;

  /// What forward keeps for the backward pass where gradients are enabled. A way of running: no spec has it.
  void set_memory(Memory memory) { memory_ = memory; }
  Memory memory() const { return memory_; }
  /// Layers whose inputs Memory::constant keeps because their inverses were found to be inexact.
  std::vector<size_t> inexact() const { return inexact_->layers(); }

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;
  Scored carry_score(const Tensor& points, const Tensor& score, const Tensor& context, Direction direction) override;
  /// Layers from the first to the last injective one, as one immersion of the points that the last one makes.
  Mapped immersed(const Tensor& z, const Tensor& context);

  std::vector<LayerPtr> layers_;
  size_t outer_ = 0;  ///< layers up to the last injective one, if others stand before it; else 0
  Memory memory_ = Memory::normal;
  std::shared_ptr<Inexact> inexact_ = std::make_shared<Inexact>();  ///< backward passes may outlive the Sequential
};

}  // namespace diffeo
