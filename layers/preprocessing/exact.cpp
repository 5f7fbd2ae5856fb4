#include "diffeo/layers/preprocessing/exact.h"

#include <ATen/ops/tensor.h>

namespace diffeo {

void ExactLayer::to(torch::Dtype dtype, bool non_blocking) {
  Layer::to(dtype, non_blocking);
  torch::NoGradGuard no_grad;
  for (auto& [buffer, values] : exact_) buffer.copy_(at::tensor(values, at::kDouble));
}

Tensor ExactLayer::register_exact(const std::string& name, const std::vector<double>& values) {
  const auto buffer = register_buffer(name, at::tensor(values, at::kDouble).to(tensor_options()));
  exact_.emplace_back(buffer, values);
  return buffer;
}

}  // namespace diffeo
