#pragma once

#include "diffeo/layers/base/log_density.h"
#include "diffeo/trainers/objective.h"

namespace diffeo {

/// The divergence between the paths of a flow with random layers and those that end in a target, both ways, in nats and
/// up to constants:
///
///   loss = a J_ML + (1 - a) J_KL
///   J_ML = -mean over data of [log p_base(z) + sum log_det],         paths from the data to the base
///   J_KL = mean over draws of [log p_base(z) - sum dS - log p(x)],   paths from the base to x
///
/// J_ML bounds minus the mean log likelihood from above, J_KL the divergence of the samples from the target, less log
/// Z. Gradients hold random numbers and accepted proposals fixed, which is exact for Langevin layers and biased for
/// those that accept or reject; importance weights are exact either way. Without random layers these are maximum
/// likelihood and the reverse divergence.
///
/// Wu, Köhler and Noé, "Stochastic normalizing flows", 2020, https://arxiv.org/abs/2002.06707, eq. 16 to 18.
class PathKl : public Objective {
 public:
  struct Options {
    Json target = nullptr;
    double mixture = 0.5;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{optional("target", &O::target,
                                 "spec of the target; null: the density of the stochastic layer next to the data"),
                        optional("mixture", &O::mixture,
                                 "a, the part of the data: 1 learns from data alone, 0 from the target alone")};
    }
  };

  PathKl(FlowPtr flow, const Options& options);
  /// For a target that no spec names; `options.target` is left aside. It goes to the precision and the device that the
  /// flow has at each loss.
  PathKl(FlowPtr flow, LogDensityPtr target, const Options& options);
  /// Rows of the batch say how many paths are drawn; at mixture 0 their values are left aside.
  Tensor loss(const Batch& batch) override;

 private:
  FlowPtr flow_;
  LogDensityPtr target_;
  double mixture_;
};

}  // namespace diffeo
