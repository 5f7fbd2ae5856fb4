#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

namespace diffeo {

/// Random numbers that are the same with every compiler and standard library: for orders of rows, which a resumed run
/// has to find again.
class PortableRandom {
 public:
  explicit PortableRandom(std::initializer_list<uint64_t> seeds);
  /// One of 0, ..., bound - 1.
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(static_cast<unsigned __int128>(engine_()) * static_cast<uint64_t>(bound) >> 64);
  }

 private:
  std::mt19937_64 engine_;
};

/// 0, ..., count - 1 in a random order that depends on the seeds only.
std::vector<int64_t> shuffled_indices(int64_t count, std::initializer_list<uint64_t> seeds);

/// A well mixed number of 64 bits for each pair of numbers.
uint64_t mixed(uint64_t seed, uint64_t number);

}  // namespace diffeo
