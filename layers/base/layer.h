#pragma once

#include "diffeo/layers/base/module.h"
#include "diffeo/layers/base/options.h"
#include "diffeo/layers/base/space.h"

namespace diffeo {

/// Points after a layer, and what the layer did to their log density.
struct Mapped {
  Tensor value;    ///< (*batch, *codomain.event)
  Tensor log_det;  ///< (*batch), nats: log|det d value / d input|, or its generalisation
};

/// Promises about a layer that tests and trainers read. A container has those that all its layers have.
struct Traits {
  bool closed_forward = true;     ///< forward is a formula, not an iteration
  bool closed_inverse = true;     ///< inverse is a formula, not an iteration
  bool quick_forward = true;      ///< forward takes one pass of its network, not one for each feature
  bool quick_inverse = true;      ///< inverse takes one pass of its network, not one for each feature
  bool exact_log_det = true;      ///< log_det is exact, not an estimate
  bool constant_log_det = false;  ///< log_det depends on no input (constant_log_det_guard.h leaves it out)
  bool random = false;            ///< a stochastic layer: log_det is log P(back) - log P(there)
  bool injective = false;         ///< codomain of lower dimension: log_det is 1/2 log det J^T J
};

/// The traits of two layers one after the other.
Traits operator&(const Traits& a, const Traits& b);

/// A point found again from the value that a layer made of it.
struct Retraced {
  Tensor input;   ///< (*batch, *domain.event), without a history; requires gradients
  Mapped output;  ///< forward at `input`, with its graph where gradients are enabled
};

/// Points after a layer, with the score of the density that they brought along: its gradient by the point.
struct Scored {
  Tensor value;    ///< (*batch, *event), with its graph where gradients are enabled
  Tensor log_det;  ///< (*batch), nats, as in Mapped, without a graph
  Tensor score;    ///< (*batch, *event), d log density / d value, without a graph
};

enum class Direction { forward, inverse };

/// A map between two spaces that accounts for the density it stretches or squeezes.
///
/// A layer has no opinion about which side is data; a Flow does. Write the cheap direction as `map`,
/// and wrap the layer in Inverse where the other one has to be fast.
///
/// To add a layer, override `map`, `unmap` and `spec`, and register it (registry.h). `map` and `unmap`
/// receive checked arguments: points (*batch, *event) of the layer's dtype and device, and a context
/// (*batch, context_size) of the same batch, or an undefined tensor if the layer takes none.
class Layer : public Module {
 public:
  /// Maps x (*batch, *domain.event), any batch, given a context (*batch, C), or one that broadcasts to it.
  /// Throws Error if shape, dtype, device or context do not fit.
  Mapped forward(const Tensor& x, const Tensor& context = {});
  /// The way back: y (*batch, *codomain.event); log_det is that of the inverse, minus that of forward.
  Mapped inverse(const Tensor& y, const Tensor& context = {});

  /// The input of a value, found by the inverse without a graph, and forward from there. A layer whose two directions
  /// share work does it once: override `unmap_and_map`.
  Retraced retrace(const Tensor& y, const Tensor& context = {});

  /// Forward with the score of a density: where `score` (*batch, *domain.event) is the gradient of log p at x, the
  /// result has that of the density which the layer makes of p, J^-T (score - grad log|det J|), in the same pass. Vaitl
  /// et al., "Fast and unified path gradient estimators for normalizing flows", 2024, https://arxiv.org/abs/2403.15881,
  /// proposition 3.2. Throws Error for random, injective and estimated layers.
  Scored forward_with_score(const Tensor& x, const Tensor& score, const Tensor& context = {});
  /// The same on the way back, from a density on the codomain.
  Scored inverse_with_score(const Tensor& y, const Tensor& score, const Tensor& context = {});

  const Space& domain() const { return domain_; }
  const Space& codomain() const { return codomain_; }
  int64_t context_size() const { return context_size_; }  ///< C, 0 if the layer takes no context

  virtual Traits traits() const { return {}; }
  /// The layer as JSON, with every option: `build_layer(spec())` makes one of the same structure.
  virtual Json spec() const = 0;

 protected:
  Layer(Space domain, Space codomain, int64_t context_size = 0);
  explicit Layer(Space space, int64_t context_size = 0) : Layer(space, space, context_size) {}

 private:
  virtual Mapped map(const Tensor& x, const Tensor& context) = 0;
  virtual Mapped unmap(const Tensor& y, const Tensor& context) = 0;
  /// The values of `map` and `unmap` alone, bit for bit. Override them where a constant log_det costs more than they
  /// do.
  virtual Tensor map_value(const Tensor& x, const Tensor& context) { return map(x, context).value; }
  virtual Tensor unmap_value(const Tensor& y, const Tensor& context) { return unmap(y, context).value; }
  virtual Retraced unmap_and_map(const Tensor& y, const Tensor& context);

  /// forward_with_score and inverse_with_score: by the way back where that is quick, else by the whole Jacobian. A
  /// layer that knows the structure of its Jacobian overrides it (score.h has the parts).
  virtual Scored carry_score(const Tensor& points, const Tensor& score, const Tensor& context, Direction direction);
  Scored with_score(const Tensor& points, const Tensor& score, const Tensor& context, Direction direction);

  Tensor checked(const Tensor& points, const Space& space, const Tensor& context) const;
  bool leaves_out_log_det() const;
  Mapped without_log_det(const Tensor& points, const Tensor& context, bool forward);

  Space domain_, codomain_;
  int64_t context_size_;
};

using LayerPtr = std::shared_ptr<Layer>;

/// Checks a context for a batch and broadcasts it: (*batch, size), or undefined where `size` is 0.
/// Throws Error beginning with `who`.
Tensor checked_context(const std::string& who, const Tensor& context, int64_t size, at::IntArrayRef batch);

}  // namespace diffeo
