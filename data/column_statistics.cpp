#include <ATen/ops/cat.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "diffeo/data/shuffle.h"
#include "diffeo/data/splits.h"

namespace diffeo {
namespace {

constexpr int64_t batch_rows = 1 << 14;
constexpr int64_t sample_rows = 100000;

/// Numbers of the rows in [begin, begin + count) that belong to a sample with one row, at a random place, of every
/// `stride`.
std::vector<int64_t> sampled(int64_t begin, int64_t count, int64_t stride) {
  std::vector<int64_t> rows;
  for (auto stratum = begin / stride; stratum * stride < begin + count; ++stratum) {
    const auto row = stratum * stride + static_cast<int64_t>(mixed(0, stratum) % stride) - begin;
    if (row >= 0 && row < count) rows.push_back(row);
  }
  return rows;
}

/// Quantile of each column of rows that are sorted along it, between two neighbours in proportion.
Tensor quantile_of(const Tensor& sorted, double fraction) {
  const auto place = fraction * static_cast<double>(sorted.size(0) - 1);
  const auto below = static_cast<int64_t>(place), above = std::min(below + 1, sorted.size(0) - 1);
  return at::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

}  // namespace

ColumnStatistics column_statistics(const Dataset& data) {
  check(data.rows() > 0, "there are no rows to take statistics of");
  const auto stride = (data.rows() + sample_rows - 1) / sample_rows;
  const auto stream = data.in_order(batch_rows);
  ColumnStatistics statistics;
  Tensor squares;  // sums of squared distances from the mean
  std::vector<Tensor> sample;
  int64_t seen = 0;
  for (Batch batch; stream->next(batch);) {
    const auto x = batch.x.to(torch::kCPU, at::kDouble).flatten(1);
    const auto rows = x.size(0);
    const auto mean = x.mean(0), spread = (x - mean).square().sum(0), low = x.amin(0), high = x.amax(0);
    if (seen == 0) {
      statistics.mean = mean, squares = spread, statistics.lower = low, statistics.upper = high;
    } else {
      // Chan, Golub, LeVeque 1979: merges two means and sums of squares without cancellation.
      const auto weight = static_cast<double>(rows) / static_cast<double>(seen + rows);
      const auto shift = mean - statistics.mean;
      squares = squares + spread + shift.square() * (static_cast<double>(seen) * weight);
      statistics.mean = statistics.mean + shift * weight;
      statistics.lower = at::minimum(statistics.lower, low);
      statistics.upper = at::maximum(statistics.upper, high);
    }
    sample.push_back(x.index_select(0, at::tensor(sampled(seen, rows, stride), at::kLong)));
    seen += rows;
  }
  statistics.deviation = (squares / static_cast<double>(seen)).sqrt();
  auto chosen = at::cat(sample);
  if (chosen.size(0) == 0) chosen = statistics.mean.unsqueeze(0);
  const auto sorted = std::get<0>(chosen.sort(0));
  statistics.quantile25 = quantile_of(sorted, 0.25);
  statistics.median = quantile_of(sorted, 0.5);
  statistics.quantile75 = quantile_of(sorted, 0.75);
  return statistics;
}

}  // namespace diffeo
