#include "diffeo/data/summary.h"

#include <cmath>
#include <limits>

namespace diffeo {
namespace {

constexpr int64_t values_at_once = int64_t{1} << 22;
constexpr int64_t sample_rows = 20000;

/// Adds the values of one piece, (n), to a summary that holds `seen` finite values.
void add(ColumnSummary& summary, int64_t& seen, const Tensor& piece, int64_t stride) {
  const auto finite = piece.index({piece.isfinite()});
  summary.missing += piece.numel() - finite.numel();
  const auto n = finite.numel();
  if (n == 0) return;
  // Chan et al. 1983: means and sums of squares of two sets joined without cancellation.
  const double mean = finite.mean().item<double>(), squares = (finite - mean).square().sum().item<double>();
  const double shift = mean - summary.mean, all = static_cast<double>(seen + n);
  summary.deviation += squares + shift * shift * (static_cast<double>(seen) * static_cast<double>(n) / all);
  summary.mean += shift * static_cast<double>(n) / all;
  seen += n;
  summary.smallest = std::fmin(summary.smallest, finite.min().item<double>());
  summary.largest = std::fmax(summary.largest, finite.max().item<double>());
  summary.whole = summary.whole && finite.eq(finite.round()).all().item<bool>();
  summary.sample = torch::cat({summary.sample, finite.slice(0, 0, n, stride)});
}

}  // namespace

std::vector<ColumnSummary> summarize(const TableSource& source, int64_t rows) {
  const auto info = table_info(source);
  const auto wanted = rows < 0 ? info.rows : std::min(rows, info.rows);
  const auto features = static_cast<int64_t>(info.columns.size());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<ColumnSummary> summaries(features);
  std::vector<int64_t> seen(features, 0);
  for (auto& summary : summaries) {
    summary.smallest = summary.largest = nan;
    summary.sample = torch::empty({0}, torch::kFloat64);
  }
  const auto stride = std::max<int64_t>(1, (wanted + sample_rows - 1) / sample_rows);
  // A whole number of strides in each piece: the sample is spread evenly.
  const auto at_once = std::max<int64_t>(1, values_at_once / std::max<int64_t>(1, features) / stride) * stride;
  for (int64_t begin = 0; begin < wanted; begin += at_once) {
    const auto piece = read_table(source, torch::kFloat64, begin, std::min(wanted, begin + at_once), false);
    const auto by_column = piece.values.t().contiguous();
    for (int64_t i = 0; i < features; ++i) add(summaries[i], seen[i], by_column[i], stride);
  }
  for (int64_t i = 0; i < features; ++i) {
    auto& summary = summaries[i];
    if (seen[i] == 0) summary.mean = nan;
    summary.deviation =
        seen[i] == 0 ? nan : std::sqrt(summary.deviation / static_cast<double>(std::max<int64_t>(1, seen[i] - 1)));
  }
  return summaries;
}

}  // namespace diffeo
