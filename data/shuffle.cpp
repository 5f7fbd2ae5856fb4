#include "diffeo/data/shuffle.h"

#include <numeric>
#include <utility>

namespace diffeo {

uint64_t mixed(uint64_t seed, uint64_t number) {
  // The output function of SplitMix64 (Steele, Lea, Flood 2014, https://doi.org/10.1145/2714064.2660195).
  uint64_t z = seed * 0x9E3779B97F4A7C15 + number + 0x9E3779B97F4A7C15;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
  z = (z ^ z >> 27) * 0x94D049BB133111EB;
  return z ^ z >> 31;
}

PortableRandom::PortableRandom(std::initializer_list<uint64_t> seeds) {
  uint64_t seed = 0;
  for (const auto part : seeds) seed = mixed(seed, part);
  engine_.seed(seed);
}

std::vector<int64_t> shuffled_indices(int64_t count, std::initializer_list<uint64_t> seeds) {
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  PortableRandom random(seeds);
  for (int64_t i = count; i-- > 1;) std::swap(order[i], order[random.below(i + 1)]);
  return order;
}

}  // namespace diffeo
