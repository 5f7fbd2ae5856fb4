#include "diffeo/layers/base/random_order.h"

#include <numeric>
#include <random>
#include <utility>

namespace diffeo {

std::vector<int64_t> random_order(int64_t n, int64_t seed) {
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  // Not std::shuffle: its result is not the same in every standard library.
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  for (int64_t i = n; i-- > 1;) std::swap(order[i], order[random() % (i + 1)]);
  return order;
}

std::vector<int64_t> inverse_order(const std::vector<int64_t>& order) {
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int64_t>(i);
  return inverse;
}

}  // namespace diffeo
