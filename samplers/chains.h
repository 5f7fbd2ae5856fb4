#pragma once

#include "diffeo/layers/stochastic/build_kernel.h"

namespace diffeo {

/// How to run Markov chains.
struct ChainOptions {
  int64_t draws = 1000;   ///< kept, from each chain
  int64_t discard = 100;  ///< calls of the kernel before the first draw; its step size adapts in them
  int64_t thin = 1;       ///< calls of the kernel for each draw
};

/// Draws from a kernel's density by chains side by side: (draws, chains, *event), from starts (chains, *event). The
/// kernel is one that leaves its density as it is (metropolis, mala, hmc; the Langevin kinds do so only for small
/// steps). Without gradients; the kernel's mode is put back at the end. Throws Error for starts that do not fit.
Tensor run_chains(Kernel& kernel, const Tensor& starts, const ChainOptions& options = {});

}  // namespace diffeo
