#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace diffeo {

/// Deals rows out to parts of exact sizes at random, every way equally likely, without holding a list of them:
/// selection sampling (Knuth, The Art of Computer Programming, vol. 2, 3.4.2, algorithm S), one block at a time.
class SplitRows {
 public:
  static constexpr int parts = 3;
  using Counts = std::array<int64_t, parts>;

  /// `rows` rows in blocks of `block_rows`; rows beyond the sum of `counts` go to no part.
  SplitRows(int64_t rows, const Counts& counts, uint64_t seed, int64_t block_rows);

  /// Numbers of the rows of each part in a block, counted from the block's first.
  std::array<std::vector<int64_t>, parts> rows_in(int64_t block) const;
  int64_t count(int64_t block, int part) const { return left_[block][part] - left_[block + 1][part]; }

 private:
  template <class Deal>
  void deal(int64_t block, Deal&& to) const;

  int64_t rows_, block_rows_;
  uint64_t seed_;
  std::vector<Counts> left_;  ///< of each part before each block
};

/// Sizes of the parts for fractions of `rows`. Throws Error unless they are positive and sum to at most 1.
SplitRows::Counts split_counts(int64_t rows, const std::vector<double>& fractions);

}  // namespace diffeo
