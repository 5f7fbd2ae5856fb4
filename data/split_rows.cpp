#include "diffeo/data/split_rows.h"

#include <cmath>

#include "diffeo/data/shuffle.h"
#include "diffeo/layers/base/error.h"

namespace diffeo {

SplitRows::SplitRows(int64_t rows, const Counts& counts, uint64_t seed, int64_t block_rows)
    : rows_(rows), block_rows_(block_rows), seed_(seed), left_{counts} {
  for (int64_t block = 0; block * block_rows_ < rows_; ++block) {
    auto left = left_.back();
    deal(block, [&](int64_t, int part) { --left[part]; });
    left_.push_back(left);
  }
}

template <class Deal>
void SplitRows::deal(int64_t block, Deal&& to) const {
  auto left = left_[block];
  const auto begin = block * block_rows_, end = std::min(rows_, begin + block_rows_);
  for (auto row = begin; row < end; ++row) {
    const auto random = mixed(seed_, static_cast<uint64_t>(row));
    auto place =
        static_cast<int64_t>(static_cast<unsigned __int128>(random) * static_cast<uint64_t>(rows_ - row) >> 64);
    for (int part = 0; part < parts; ++part) {
      if (place < left[part]) {
        --left[part];
        to(row - begin, part);
        break;
      }
      place -= left[part];
    }
  }
}

std::array<std::vector<int64_t>, SplitRows::parts> SplitRows::rows_in(int64_t block) const {
  std::array<std::vector<int64_t>, parts> rows;
  deal(block, [&](int64_t row, int part) { rows[part].push_back(row); });
  return rows;
}

SplitRows::Counts split_counts(int64_t rows, const std::vector<double>& fractions) {
  check(!fractions.empty() && fractions.size() <= SplitRows::parts,
        "split: expected fractions for train, valid and test, got ", fractions.size(), " numbers");
  double sum = 0;
  for (const auto fraction : fractions) {
    check(fraction >= 0 && fraction <= 1, "split: fractions lie between 0 and 1, got ", fraction);
    sum += fraction;
  }
  check(sum <= 1 + 1e-9, "split: the fractions sum to ", sum, ", more than 1");
  SplitRows::Counts counts{};
  double until = 0;
  int64_t given = 0;
  for (size_t part = 0; part < fractions.size(); ++part) {
    until += fractions[part];
    const auto end = std::min(rows, static_cast<int64_t>(std::llround(until * static_cast<double>(rows))));
    counts[part] = end - given;
    given = end;
  }
  check(counts[0] > 0, "split: no rows are left to train on: ", rows, " rows, of which a fraction of ", fractions[0]);
  return counts;
}

}  // namespace diffeo
