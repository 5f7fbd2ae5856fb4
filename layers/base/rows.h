#pragma once

#include "diffeo/layers/base/lanes.h"

// What kernels over rows of numbers need on the CPU: registers that are not full, and sums along rows.
namespace diffeo::lanes::DIFFEO_CAPABILITY {

/// `count` elements, `stride` apart.
template <class T>
DIFFEO_HD Pack<T> load_some(const T* from, int64_t count, int64_t stride = 1) {
  constexpr int64_t lanes = pack_size<T>;
  if (count == lanes && stride == 1) return load<Pack<T>>(from);
  Pack<T> value;
  // Lanes to spare repeat the last element: they compute the same, and nobody looks.
  for (int64_t v = 0; v < lanes; ++v) value[v] = from[(v < count ? v : count - 1) * stride];
  return value;
}

template <class T>
DIFFEO_HD void store_some(T* to, Pack<T> value, int64_t count, int64_t stride = 1) {
  constexpr int64_t lanes = pack_size<T>;
  if (count == lanes && stride == 1) return store(to, value);
  for (int64_t v = 0; v < lanes; ++v)
    if (v < count) to[v * stride] = value[v];
}

/// Adds up log slopes along rows, in double whatever T is: in four sums that take turns, since each addition waits for
/// the one before. Which sum a number goes to depends on its column alone, so that a row has one result.
template <class T>
class RowSums {
 public:
  RowSums(T* sums, int64_t columns) : next_(sums), columns_(columns) {}

  void add(const T* values, int64_t count) {
    for (int64_t i = 0; i < count;) {
      const int64_t left = columns_ - column_, stop = count - i < left ? count : i + left;
      for (; i < stop && column_ % 4 != 0; ++i) total_[column_++ % 4] += static_cast<double>(values[i]);
      for (; i + 4 <= stop; i += 4, column_ += 4)
        for (int k = 0; k < 4; ++k) total_[k] += static_cast<double>(values[i + k]);
      for (; i < stop; ++i) total_[column_++ % 4] += static_cast<double>(values[i]);
      if (column_ < columns_) return;
      *next_++ = static_cast<T>((total_[0] + total_[1]) + (total_[2] + total_[3]));
      for (double& total : total_) total = 0;
      column_ = 0;
    }
  }

 private:
  T* next_;
  int64_t columns_, column_ = 0;
  double total_[4] = {};
};

/// Gives each row's number to every element of the row.
template <class T>
class RowSpread {
 public:
  RowSpread(const T* rows, int64_t columns) : next_(rows), columns_(columns) {}

  /// For the next `count` elements.
  void take(T* to, int64_t count) {
    for (int64_t i = 0; i < count;) {
      const int64_t left = columns_ - column_, stop = count - i < left ? count : i + left;
      column_ += stop - i;
      for (; i < stop; ++i) to[i] = *next_;
      if (column_ < columns_) return;
      ++next_;
      column_ = 0;
    }
  }

 private:
  const T* next_;
  int64_t columns_, column_ = 0;
};

}  // namespace diffeo::lanes::DIFFEO_CAPABILITY
