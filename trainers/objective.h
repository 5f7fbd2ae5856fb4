#pragma once

#include "diffeo/data/dataset.h"
#include "diffeo/flows/flow.h"

namespace diffeo {

/// Turns a batch into the scalar to minimise. All that must learn is its child.
class Objective : public Module {
 public:
  /// A scalar, in nats where it is a likelihood. `weight` of the batch, where given, weighs its rows.
  virtual Tensor loss(const Batch& batch) = 0;
};

/// Minus the mean (weighted) log likelihood of a flow.
class MaximumLikelihood : public Objective {
 public:
  explicit MaximumLikelihood(FlowPtr flow);
  Tensor loss(const Batch& batch) override;

 private:
  FlowPtr flow_;
};

/// The mean of `values` (B), weighted by `weight` (B) where it is defined.
Tensor weighted_mean(const Tensor& values, const Tensor& weight);

}  // namespace diffeo
