#include "diffeo/layers/base/peak_memory.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>

namespace diffeo {
namespace {

/// LibTorch's own account of its allocations, as its profiler takes it.
struct Account : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device device) override {
    if (!device.is_cpu()) return;
    now += bytes;
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t now = 0, peak = 0;
};

}  // namespace

struct PeakMemory::Watch {
  std::shared_ptr<Account> account = std::make_shared<Account>();
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, account};
};

PeakMemory::PeakMemory() : watch_(std::make_unique<Watch>()) {}
PeakMemory::~PeakMemory() = default;
int64_t PeakMemory::now() const { return watch_->account->now; }
int64_t PeakMemory::peak() const { return watch_->account->peak; }

}  // namespace diffeo
