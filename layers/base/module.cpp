#include "diffeo/layers/base/module.h"

namespace diffeo {

void Module::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  to(device, non_blocking);
  to(dtype, non_blocking);
}

void Module::to(torch::Dtype dtype, bool non_blocking) {
  tensor_options_ = tensor_options_.dtype(dtype);
  const auto cast = [&](Tensor& tensor) {
    if (tensor.defined() && tensor.is_floating_point()) tensor.set_data(tensor.to(dtype, non_blocking));
  };
  for (auto& parameter : named_parameters(false)) cast(parameter.value());
  for (auto& buffer : named_buffers(false)) cast(buffer.value());
  for (auto& child : children()) child->to(dtype, non_blocking);
}

void Module::to(torch::Device device, bool non_blocking) {
  tensor_options_ = tensor_options_.device(device);
  torch::nn::Module::to(device, non_blocking);
}

std::vector<std::pair<std::string, Tensor>> named_state(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, Tensor>> state;
  for (const auto& parameter : module.named_parameters()) state.emplace_back(parameter.key(), parameter.value());
  for (const auto& buffer : module.named_buffers()) state.emplace_back(buffer.key(), buffer.value());
  return state;
}

void copy_state(const torch::nn::Module& from, torch::nn::Module& to) {
  torch::NoGradGuard no_grad;
  const auto source = named_state(from), target = named_state(to);
  TORCH_INTERNAL_ASSERT(source.size() == target.size());
  for (size_t i = 0; i < source.size(); ++i) {
    TORCH_INTERNAL_ASSERT(source[i].first == target[i].first && source[i].second.sizes() == target[i].second.sizes());
    Tensor(target[i].second).copy_(source[i].second);
  }
}

}  // namespace diffeo
