#pragma once

#include "diffeo/flows/distribution.h"
#include "diffeo/layers/base/log_density.h"

namespace diffeo {

/// The density of a distribution that takes no context, to be moved at by stochastic layers.
class DistributionDensity : public LogDensity {
 public:
  explicit DistributionDensity(DistributionPtr distribution);

 private:
  Tensor evaluate(const Tensor& x) override { return distribution_->log_prob(x); }

  DistributionPtr distribution_;
};

}  // namespace diffeo
