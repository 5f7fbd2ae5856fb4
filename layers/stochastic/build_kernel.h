#pragma once

#include "diffeo/layers/stochastic/kernel.h"

namespace diffeo {

using KernelPtr = std::shared_ptr<Kernel>;

/// A stochastic layer from its spec, `{"type": "hmc", ...}`, whose "density" may be left out: it moves at `density`
/// and, where given, `start`, which many layers may share. Where the spec names no density, neither will that of the
/// layer. Throws SpecError naming the place and the known kernels or keys.
KernelPtr build_kernel(const Json& spec, LogDensityPtr density, LogDensityPtr start = nullptr);

/// The names of the kernels.
const std::vector<std::string>& kernel_names();

}  // namespace diffeo
