#pragma once

#include <torch/types.h>

namespace diffeo {

using torch::Tensor;

/// The state of torch's default generator of a device: (N) bytes on the CPU, to be kept and set again.
Tensor random_state(torch::Device device);
/// Throws Error if `state` is no state of a generator of this kind of device.
void set_random_state(torch::Device device, const Tensor& state);

/// Seeds torch's default generators within a scope: that of the CPU and, where `device` is another one, that of
/// `device`. When the scope ends they are in the state that they had before it.
class SeedGuard {
 public:
  explicit SeedGuard(uint64_t seed, torch::Device device = torch::kCPU);
  ~SeedGuard();
  SeedGuard(const SeedGuard&) = delete;
  SeedGuard& operator=(const SeedGuard&) = delete;

 private:
  torch::Device device_;
  Tensor cpu_, other_;
};

}  // namespace diffeo
