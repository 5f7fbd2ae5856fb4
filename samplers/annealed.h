#pragma once

#include "diffeo/layers/stochastic/build_kernel.h"
#include "diffeo/samplers/weighted.h"

namespace diffeo {

/// How to go from a base to a target.
struct Annealing {
  Json kernel = {{"type", "hmc"}, {"steps", 4}, {"leapfrog", 5}, {"step_size", 0.15}};  ///< without density and lambda
  int64_t blocks = 10;           ///< layers, at lambda 1/blocks, 2/blocks, ..., 1
  std::vector<double> schedule;  ///< instead of even steps: the lambdas, growing to the last one, 1
};

/// The flow that is annealed importance sampling: kernels at densities from the base to the target, and nothing else.
/// Throws SpecError for a schedule that does not grow to 1 and for options that a kernel does not have.
FlowPtr annealing_flow(LogDensityPtr target, DistributionPtr base, const Annealing& how = {});

/// Annealed importance sampling: a stochastic flow without flow layers.
///
/// Neal, "Annealed importance sampling", Statistics and Computing 11, 2001, https://arxiv.org/abs/physics/9803008.
Weighted annealed_importance_sampling(LogDensityPtr target, DistributionPtr base, int64_t count,
                                      const Annealing& how = {});

}  // namespace diffeo
