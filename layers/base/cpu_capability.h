#pragma once

#include <string>
#include <vector>

namespace diffeo {

/// Instruction sets that kernels are compiled for, the later ones containing the earlier ones:
/// baseline (x86-64-v2, or whatever the compiler does by itself elsewhere), avx2 (x86-64-v3), avx512 (x86-64-v4).
enum class CpuCapability { baseline, avx2, avx512 };

std::string to_string(CpuCapability capability);

/// The best that this machine has, or the one that the environment variable DIFFEO_CPU_CAPABILITY names
/// (baseline, avx2 or avx512). Throws Error where that is none of these, or more than the machine has.
CpuCapability cpu_capability();

/// Those of this machine, `baseline` first.
std::vector<CpuCapability> cpu_capabilities();

/// Uses one instruction set while in scope, in every thread: for tests and measurements.
class CpuCapabilityGuard {
 public:
  explicit CpuCapabilityGuard(CpuCapability capability);
  ~CpuCapabilityGuard();
  CpuCapabilityGuard(const CpuCapabilityGuard&) = delete;
  CpuCapabilityGuard& operator=(const CpuCapabilityGuard&) = delete;

 private:
  CpuCapability before_;
};

}  // namespace diffeo
