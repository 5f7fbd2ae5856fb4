#pragma once

#include "diffeo/layers/base/module.h"
#include "diffeo/layers/base/options.h"
#include "diffeo/layers/base/space.h"

namespace diffeo {

/// A log density and its gradient at points, both without a history.
struct Sloped {
  Tensor log_prob;  ///< (*batch), nats
  Tensor gradient;  ///< (*batch, *event), d log_prob / d point
};

/// A log density that need not be normalised: what targets, energies of flows and Markov kernels are about.
///
/// To add one, override `evaluate`, and `evaluate_with_gradient` where a formula beats autograd. Both receive checked
/// points (*batch, *event) of the dtype and device of this module's tensors, or any floating dtype where it has none.
class LogDensity : public Module {
 public:
  /// log p(x) + constant in nats, (*batch), of points (*batch, *event); -inf outside of the support. Gradients flow.
  /// Throws Error if the shape does not fit.
  Tensor log_prob(const Tensor& x);
  /// The same with its gradient by x.
  Sloped log_prob_and_gradient(const Tensor& x);

  const Space& space() const { return space_; }

 protected:
  explicit LogDensity(Space space);

 private:
  virtual Tensor evaluate(const Tensor& x) = 0;
  virtual Sloped evaluate_with_gradient(const Tensor& x);  ///< by autograd unless overridden

  void require(const Tensor& x) const;

  Space space_;
};

using LogDensityPtr = std::shared_ptr<LogDensity>;

/// The density that a spec names, of a target or of a base distribution, for layers that move at one. What may be named
/// is registered in rooms that know layers; they define this. Throws SpecError naming the place of a mistake.
LogDensityPtr build_log_density(const Json& spec);

}  // namespace diffeo
