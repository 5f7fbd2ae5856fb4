#include "diffeo/layers/base/memory.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#ifdef __GLIBC__
#include <malloc.h>
#include <sys/mman.h>
#endif

namespace diffeo {
#ifdef __GLIBC__
namespace {

constexpr size_t large_page = size_t{2} << 20;

/// Asks for large pages where the heap will be: a step's tensors are spread over more small ones than a processor keeps
/// addresses of. Nothing is touched, so nothing is taken yet.
void ask_for_large_pages() {
  std::array<void*, 16> blocks{};
  constexpr size_t size = size_t{31} << 20;  // just not a mapping of its own
  for (auto& block : blocks) block = std::malloc(size);
  for (auto* block : blocks) {
    if (!block) continue;
    const auto begin = (reinterpret_cast<uintptr_t>(block) + large_page - 1) / large_page * large_page;
    const auto end = (reinterpret_cast<uintptr_t>(block) + size) / large_page * large_page;
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  }
  for (auto* block : blocks) std::free(block);
}

}  // namespace

void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most it takes
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
  ask_for_large_pages();
}
#else
void keep_freed_memory() {}
#endif

}  // namespace diffeo
