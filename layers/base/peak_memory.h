#pragma once

#include <cstdint>
#include <memory>

namespace diffeo {

/// Watches the memory of CPU tensors within its scope, in bytes: of those that this thread makes, and that backward
/// passes make on its behalf. What lives already counts as nothing, and below it when it is freed.
class PeakMemory {
 public:
  PeakMemory();
  ~PeakMemory();
  PeakMemory(const PeakMemory&) = delete;
  PeakMemory& operator=(const PeakMemory&) = delete;

  int64_t now() const;   ///< made and not freed since the beginning of the scope
  int64_t peak() const;  ///< the most that this has been

 private:
  struct Watch;
  std::unique_ptr<Watch> watch_;
};

}  // namespace diffeo
