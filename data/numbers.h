#pragma once

#include <torch/types.h>

#include <vector>

namespace diffeo {

/// The values of a tensor of any shape, in order, as specs hold them.
std::vector<double> numbers(const torch::Tensor& values);

}  // namespace diffeo
