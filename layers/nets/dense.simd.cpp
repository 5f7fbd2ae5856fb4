#include "diffeo/layers/base/lanes.h"
#include "diffeo/layers/nets/dense_kernels.h"

namespace diffeo::dense::DIFFEO_CAPABILITY {
namespace {

using namespace lanes::DIFFEO_CAPABILITY;

/// Rows that are summed up before they are added to the sum of all: rounding errors grow with the root of their number.
constexpr int64_t rows_of_block = 64;

/// `registers` times as many columns as a register has lanes, from `column` on.
template <class T, int registers, bool mask, bool write, bool add>
void strip(const Rectified<T>& pass, int64_t column) {
  using V = Pack<T>;
  constexpr int64_t lanes = pack_size<T>;
  V total[registers] = {};
  for (int64_t first = 0; first < pass.rows; first += rows_of_block) {
    const int64_t last = pass.rows - first < rows_of_block ? pass.rows : first + rows_of_block;
    V sum[registers] = {};
    for (int64_t row = first; row < last; ++row) {
      const int64_t at = row * pass.columns + column;
      for (int r = 0; r < registers; ++r) {
        V value = load<V>(pass.by_hidden + at + r * lanes);
        if constexpr (mask) value = select(load<V>(pass.hidden + at + r * lanes) > 0, value, V{});
        if constexpr (add) value += load<V>(pass.by_input + at + r * lanes);
        if constexpr (write) store(pass.by_input + at + r * lanes, value);
        sum[r] += value;
      }
    }
    for (int r = 0; r < registers; ++r) total[r] += sum[r];
  }
  for (int r = 0; r < registers; ++r) store(pass.sums + column + r * lanes, total[r]);
}

template <class T>
void one_column(const Rectified<T>& pass, int64_t column) {
  T total = 0;
  for (int64_t first = 0; first < pass.rows; first += rows_of_block) {
    const int64_t last = pass.rows - first < rows_of_block ? pass.rows : first + rows_of_block;
    T sum = 0;
    for (int64_t row = first; row < last; ++row) {
      const int64_t at = row * pass.columns + column;
      T value = pass.by_hidden[at];
      if (pass.hidden) value = pass.hidden[at] > 0 ? value : T(0);
      if (pass.add) value += pass.by_input[at];
      if (pass.by_input) pass.by_input[at] = value;
      sum += value;
    }
    total += sum;
  }
  pass.sums[column] = total;
}

template <class T, bool mask, bool write, bool add>
void strips(const Rectified<T>& pass, int64_t begin, int64_t end) {
  constexpr int64_t lanes = pack_size<T>;
  int64_t column = begin;
  for (; column + 4 * lanes <= end; column += 4 * lanes) strip<T, 4, mask, write, add>(pass, column);
  for (; column + lanes <= end; column += lanes) strip<T, 1, mask, write, add>(pass, column);
  if (column == end) return;
  // The last register reaches back over columns that are done: twice is as good as once, unless something is added.
  if (!add && end - lanes >= begin) return strip<T, 1, mask, write, add>(pass, end - lanes);
  for (; column < end; ++column) one_column(pass, column);
}

template <class T>
void rectified(const Rectified<T>& pass, int64_t begin, int64_t end) {
  if (!pass.by_input) return strips<T, false, false, false>(pass, begin, end);
  if (!pass.hidden) return (pass.add ? strips<T, false, true, true> : strips<T, false, true, false>)(pass, begin, end);
  (pass.add ? strips<T, true, true, true> : strips<T, true, true, false>)(pass, begin, end);
}

}  // namespace

const CpuKernels<float>& kernels(float) {
  static constexpr CpuKernels<float> table{rectified<float>};
  return table;
}
const CpuKernels<double>& kernels(double) {
  static constexpr CpuKernels<double> table{rectified<double>};
  return table;
}

}  // namespace diffeo::dense::DIFFEO_CAPABILITY
