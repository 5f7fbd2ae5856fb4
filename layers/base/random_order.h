#pragma once

#include <cstdint>
#include <vector>

namespace diffeo {

/// The numbers 0 ... n - 1 in an order that depends on the seed alone: the same on every machine, as specs need it.
std::vector<int64_t> random_order(int64_t n, int64_t seed);

/// The order that undoes `order`: inverse_order(order)[order[i]] == i.
std::vector<int64_t> inverse_order(const std::vector<int64_t>& order);

}  // namespace diffeo
