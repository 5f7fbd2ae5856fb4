#pragma once

#include <torch/nn/module.h>

namespace diffeo {

using torch::Tensor;

/// torch::nn::Module with two repairs: casts leave integer buffers alone (LibTorch's C++ `to` casts
/// them too), and a module knows the dtype and device it lives in even when it has no parameters.
class Module : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;

  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;

  /// The dtype and device of this module's floating-point tensors.
  const torch::TensorOptions& tensor_options() const { return tensor_options_; }

 private:
  torch::TensorOptions tensor_options_ = torch::TensorOptions(torch::kFloat32).device(torch::kCPU);
};

/// Every parameter and buffer of `module` under its dotted name, parameters first, in order of registration.
std::vector<std::pair<std::string, Tensor>> named_state(const torch::nn::Module& module);

/// Copies values between two modules of the same structure, across dtypes and devices.
void copy_state(const torch::nn::Module& from, torch::nn::Module& to);

}  // namespace diffeo
