#pragma once

#include "diffeo/data/dataset.h"

namespace diffeo {

/// x (N, D) with uniform noise in [0, 1) added to the columns named by index. The noise depends on `seed` alone.
Tensor dequantize(const Tensor& x, const std::vector<int64_t>& columns, uint64_t seed);

/// The same batches with such noise in their columns, for evaluations: the density of the result bounds the log
/// probability of the integers from below on average (Theis et al. 2016, https://arxiv.org/abs/1511.01844, eq. 4).
std::unique_ptr<BatchStream> dequantized(std::unique_ptr<BatchStream> rows, std::vector<int64_t> columns,
                                         uint64_t seed);

}  // namespace diffeo
