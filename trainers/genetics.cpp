#include "diffeo/trainers/genetics.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/special_ndtri.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "diffeo/layers/base/error.h"

namespace diffeo {
namespace {

constexpr int64_t markers_at_once = 512;

/// Means of the calls that are there, (M) in float64.
Tensor mean_dosages(const Tensor& dosages) {
  const auto missing = at::isnan(dosages);
  const auto calls = missing.logical_not().sum(0, false, torch::kFloat64);
  return at::nan_to_num(dosages, 0.0).sum(0, false, torch::kFloat64) / calls.clamp_min(1);
}

}  // namespace

MarkerSummary summary_of_markers(const Tensor& dosages, const MarkerFilter& filter) {
  check(dosages.dim() == 2 && dosages.size(0) > 0, "markers: expected dosages of shape (n, M), got ", dosages.sizes());
  MarkerSummary summary;
  const auto gaps = at::isnan(dosages);
  const auto mean = mean_dosages(dosages);
  summary.frequency = mean / 2;
  summary.missing = gaps.sum(0, false, torch::kFloat64) / static_cast<double>(dosages.size(0));
  const auto filled = at::where(gaps, mean.to(dosages.scalar_type()), dosages);
  const auto rarer = at::where(summary.frequency > 0.5, 1 - summary.frequency, summary.frequency);
  summary.used = (rarer >= filter.least_frequency)
                     .logical_and(summary.missing <= filter.most_missing)
                     .logical_and(filled.amax(0) > filled.amin(0));
  return summary;
}

Tensor without_missing(const Tensor& dosages) {
  return at::where(at::isnan(dosages), mean_dosages(dosages).to(dosages.scalar_type()), dosages);
}

Tensor centred_relatedness(const Tensor& dosages) {
  check(dosages.dim() == 2 && dosages.size(1) > 0, "relatedness: expected dosages of shape (n, M), got ",
        dosages.sizes());
  check(!at::isnan(dosages).any().item<bool>(), "relatedness: dosages are missing");
  const auto rows = dosages.size(0), count = dosages.size(1);
  auto matrix = at::zeros({rows, rows}, torch::kFloat64);
  for (int64_t begin = 0; begin < count; begin += markers_at_once) {
    auto some = dosages.narrow(1, begin, std::min(markers_at_once, count - begin)).to(torch::kFloat64);
    some = some - some.mean(0, true);
    matrix.addmm_(some, some.t());
  }
  return matrix / static_cast<double>(count);
}

Tensor rank_normal(const Tensor& values) {
  check(values.dim() == 1, "rank transform: expected values of shape (n), got ", values.sizes());
  const auto given = values.detach().to(torch::kCPU, torch::kFloat64).contiguous();
  const auto* value = given.data_ptr<double>();
  std::vector<int64_t> order;
  for (int64_t i = 0; i < given.numel(); ++i)
    if (value[i] == value[i]) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return value[a] < value[b]; });
  const auto count = static_cast<double>(order.size());
  auto shares = at::full_like(given, std::numeric_limits<double>::quiet_NaN());
  auto* share = shares.data_ptr<double>();
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && value[order[end]] == value[order[begin]]) ++end;
    const double rank = 0.5 * static_cast<double>(begin + 1 + end);
    for (auto i = begin; i < end; ++i) share[order[i]] = (rank - 0.375) / (count + 0.25);
  }
  return at::special_ndtri(shares);
}

double false_discovery_threshold(const Tensor& p, double rate) {
  check(rate > 0 && rate < 1, "false discovery rate: must be between 0 and 1, got ", rate);
  const auto sorted = std::get<0>(p.to(torch::kFloat64).sort());
  const auto bound =
      at::arange(1, p.numel() + 1, torch::kFloat64) * (rate / static_cast<double>(std::max<int64_t>(1, p.numel())));
  const auto below = (sorted <= bound).nonzero();
  return below.size(0) == 0 ? 0 : sorted[below[below.size(0) - 1][0].item<int64_t>()].item<double>();
}

double inflation(const Tensor& p) {
  check(p.numel() > 0, "inflation: there are no p-values");
  // The median of a monotone function of p is the function of the median.
  const auto sorted = std::get<0>(p.to(torch::kFloat64).sort());
  const auto middle = 0.5 * (sorted[(p.numel() - 1) / 2] + sorted[p.numel() / 2]);
  const auto quantile = [](const Tensor& tail) { return at::special_ndtri(tail / 2).square().item<double>(); };
  return quantile(middle) / quantile(at::full_like(middle, 0.5));
}

}  // namespace diffeo
