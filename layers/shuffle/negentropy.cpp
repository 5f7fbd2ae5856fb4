#include "diffeo/layers/shuffle/negentropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <cmath>
#include <numbers>

namespace diffeo {

at::Tensor negentropy(const at::Tensor& values) {
  const auto n = values.size(0);
  const auto m = std::llround(std::sqrt(static_cast<double>(n)));
  const auto centred = values - values.mean(0);
  const auto deviation = centred.square().mean(0).sqrt().clamp_min(1e-12);
  const auto sorted = std::get<0>((centred / deviation).t().contiguous().sort(-1));
  const auto index = at::arange(n, values.options().dtype(at::kLong));
  const auto above = sorted.index_select(1, (index + m).clamp_max(n - 1)),
             below = sorted.index_select(1, (index - m).clamp_min(0));
  const auto spacing = ((above - below) * (static_cast<double>(n) / static_cast<double>(2 * m))).clamp_min(1e-12);
  return 0.5 * std::log(2 * std::numbers::pi * std::numbers::e) - spacing.log().mean(1);
}

}  // namespace diffeo
