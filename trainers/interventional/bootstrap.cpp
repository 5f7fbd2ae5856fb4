#include "diffeo/trainers/interventional/bootstrap.h"

#include "diffeo/layers/base/random.h"
#include "diffeo/trainers/interventional/correction.h"

namespace diffeo {
namespace {

constexpr int64_t rows_at_a_time = 4096;

}  // namespace

MultiplierBootstrap::MultiplierBootstrap(int64_t draws, uint64_t seed) : draws_(draws), seed_(seed) {
  check(draws >= 2, "bootstrap: needs at least 2 draws, got ", draws);
}

Tensor MultiplierBootstrap::means(const Tensor& scores) const {
  const SeedGuard guard(seed_, scores.device());
  const auto options = scores.options();
  auto sums = torch::zeros({draws_, scores.size(1)}, options), totals = torch::zeros({draws_, 1}, options);
  for (const auto& rows : scores.split(rows_at_a_time)) {
    const auto weights = torch::empty({draws_, rows.size(0)}, options).exponential_();
    sums.addmm_(weights, rows);
    totals.add_(weights.sum(1, /*keepdim=*/true));
  }
  return torch::cat({scores.mean(0, /*keepdim=*/true), sums / totals});
}

DistributionFunctions::DistributionFunctions(Tensor points, const Tensor& values) : points_(std::move(points)) {
  check(points_.dim() == 1 && points_.size(0) >= 2 && values.dim() == 2 && values.size(1) == points_.size(0),
        "distribution functions: expected values (R, Q) at points (Q), got ", values.sizes(), " and ", points_.sizes());
  std::vector<Tensor> rows;
  for (const auto& row : values.unbind()) rows.push_back(increasing(row));
  values_ = torch::stack(rows).clamp(0, 1);
}

Tensor DistributionFunctions::at(const Tensor& places) const {
  const auto right = torch::searchsorted(points_, places.contiguous()).clamp(1, points_.size(0) - 1);
  const auto left = right - 1, left_point = points_.index_select(0, left),
             step = points_.index_select(0, right) - left_point;
  const auto part = ((places - left_point) / step.clamp_min(1e-300)).clamp(0, 1);
  return values_.index_select(1, left) * (1 - part) + values_.index_select(1, right) * part;
}

Tensor DistributionFunctions::quantile(double level) const {
  const auto right = values_.lt(level).sum(1).clamp(1, points_.size(0) - 1), left = right - 1;
  const auto value = [&](const Tensor& place) { return values_.gather(1, place.unsqueeze(1)).squeeze(1); };
  const auto low = value(left), rise = value(right) - low;
  const auto part = ((level - low) / rise.clamp_min(1e-300)).clamp(0, 1);
  return points_.index_select(0, left) * (1 - part) + points_.index_select(0, right) * part;
}

}  // namespace diffeo
