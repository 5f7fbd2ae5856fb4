#include "diffeo/layers/base/cpu_capability.h"

#include <atomic>
#include <cstdlib>

#include "diffeo/layers/base/error.h"

namespace diffeo {
namespace {

CpuCapability best() {
#ifdef __x86_64__
  __builtin_cpu_init();
  const auto has_all = [](auto... has) { return (has && ...); };
  if (!has_all(__builtin_cpu_supports("avx2"), __builtin_cpu_supports("fma"), __builtin_cpu_supports("bmi"),
               __builtin_cpu_supports("bmi2")))
    return CpuCapability::baseline;
  if (!has_all(__builtin_cpu_supports("avx512f"), __builtin_cpu_supports("avx512dq"),
               __builtin_cpu_supports("avx512cd"), __builtin_cpu_supports("avx512bw"),
               __builtin_cpu_supports("avx512vl")))
    return CpuCapability::avx2;
  return CpuCapability::avx512;
#else
  return CpuCapability::baseline;
#endif
}

CpuCapability at_start() {
  const char* wanted = std::getenv("DIFFEO_CPU_CAPABILITY");
  if (wanted == nullptr || *wanted == '\0') return best();
  for (const auto capability : cpu_capabilities())
    if (to_string(capability) == wanted) return capability;
  throw Error(c10::str("DIFFEO_CPU_CAPABILITY is '", wanted, "'; this machine has ", [] {
    std::string names;
    for (const auto capability : cpu_capabilities()) names += (names.empty() ? "" : ", ") + to_string(capability);
    return names;
  }()));
}

std::atomic<CpuCapability>& in_use() {
  static std::atomic<CpuCapability> capability{at_start()};
  return capability;
}

}  // namespace

std::string to_string(CpuCapability capability) {
  return capability == CpuCapability::baseline ? "baseline" : capability == CpuCapability::avx2 ? "avx2" : "avx512";
}

CpuCapability cpu_capability() { return in_use(); }

std::vector<CpuCapability> cpu_capabilities() {
  std::vector<CpuCapability> all{CpuCapability::baseline};
  if (best() >= CpuCapability::avx2) all.push_back(CpuCapability::avx2);
  if (best() >= CpuCapability::avx512) all.push_back(CpuCapability::avx512);
  return all;
}

CpuCapabilityGuard::CpuCapabilityGuard(CpuCapability capability) : before_(cpu_capability()) {
  check(capability <= best(), "this machine has no ", to_string(capability));
  in_use() = capability;
}

CpuCapabilityGuard::~CpuCapabilityGuard() { in_use() = before_; }

}  // namespace diffeo
