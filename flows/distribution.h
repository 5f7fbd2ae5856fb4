#pragma once

#include "diffeo/layers/base/registry.h"

namespace diffeo {

/// Points drawn from a distribution, with their own log density.
struct Drawn {
  Tensor value;     ///< (*batch, *event)
  Tensor log_prob;  ///< (*batch), nats
};

/// Something that can be sampled and whose density can be evaluated.
///
/// To add one, override `evaluate`, `simulate` and `spec`, and register it. Both receive checked arguments.
class Distribution : public Module {
 public:
  /// Log density in nats, (*batch), of x (*batch, *event), given a context (*batch, C) or one that broadcasts to it.
  /// -inf outside of the support. Throws Error if shape, dtype, device or context do not fit.
  Tensor log_prob(const Tensor& x, const Tensor& context = {});

  /// A batch of points and their log density in one pass. A context (*batch, C), or one that broadcasts to it, is
  /// paired with the points. Gradients flow to the parameters where the distribution is reparametrised.
  Drawn draw(at::IntArrayRef batch, const Tensor& context = {});

  /// n points: (n, *event); for each of M contexts (M, C): (M, n, *event).
  Tensor sample(int64_t n, const Tensor& context = {});
  /// One point for each of M contexts (M, C): (M, *event).
  Tensor sample_paired(const Tensor& context);

  const Space& space() const { return space_; }
  int64_t context_size() const { return context_size_; }  ///< C, 0 if it takes no context
  virtual Json spec() const = 0;

 protected:
  explicit Distribution(Space space, int64_t context_size = 0);

 private:
  virtual Tensor evaluate(const Tensor& x, const Tensor& context) = 0;
  virtual Drawn simulate(at::IntArrayRef batch, const Tensor& context) = 0;

  Space space_;
  int64_t context_size_;
};

using DistributionPtr = std::shared_ptr<Distribution>;
using DistributionEntry = Entry<Distribution>;

const std::vector<const DistributionEntry*>& all_distributions();
DistributionPtr build_distribution(const Json& spec);

}  // namespace diffeo

/// Registers a base distribution, as DIFFEO_LAYER does a layer.
#define DIFFEO_DISTRIBUTION(name, Class, summary, ...) \
  extern const DistributionEntry distribution_##name;  \
  const DistributionEntry distribution_##name = entry<Distribution, Class>(#name, summary, "", "", {__VA_ARGS__})
