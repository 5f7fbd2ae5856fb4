#pragma once

#include "diffeo/flows/flow.h"
#include "diffeo/layers/stochastic/kernel.h"

namespace diffeo {

/// Samples with importance weights for a target.
struct Weighted {
  Tensor x;           ///< (N, *event)
  Tensor log_weight;  ///< (N), nats: log p_target(x) - log p_path(x), the target unnormalised
};

/// `count` samples of a flow, with or without random layers, each with the weight that makes it one of the target:
///
///   log w = log p_target(x_T) - log p_base(x_0) + sum dS
///
/// so that the mean of w is the integral Z of exp(log p_target), and sum w f / sum w estimates the mean of f over the
/// target (importance.h). Without gradients, `batch_size` samples at a time. Throws Error if the spaces differ.
Weighted draw_weighted(Flow& flow, LogDensity& target, int64_t count, int64_t batch_size = 16384);

/// The stochastic layers of a flow, from the base to the data.
std::vector<std::shared_ptr<Kernel>> kernels_of(const Flow& flow);

}  // namespace diffeo
