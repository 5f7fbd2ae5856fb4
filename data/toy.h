#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

namespace diffeo {

using torch::Tensor;

/// Names of the densities in two dimensions for first steps and tests: moons, circles, spirals, pinwheel, checkerboard,
/// 8gaussians and rings.
const std::vector<std::string>& toy_names();

/// n points (n, 2) of the density `name`, within about (-4, 4)^2. They depend on `seed` only.
/// The scales are those of Grathwohl et al., "FFJORD", 2019, https://arxiv.org/abs/1810.01367, so that pictures and
/// likelihoods can be compared. Throws Error with the nearest name for an unknown one.
Tensor toy(const std::string& name, int64_t n, uint64_t seed, torch::Dtype dtype = torch::kFloat32);

}  // namespace diffeo
