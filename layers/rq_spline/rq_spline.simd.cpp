// The spline's passes over rows on the CPU: as many elements at once as a register holds, with the parameters of that
// many elements transposed, so that lane v belongs to element v throughout. Compiled once for each instruction set.
#include <new>

#include "diffeo/layers/base/rows.h"
#include "diffeo/layers/base/transpose.h"
#include "diffeo/layers/rq_spline/rq_spline_cpu.h"
#include "diffeo/layers/rq_spline/rq_spline_kernel.h"

namespace diffeo::rq_spline::DIFFEO_CAPABILITY {
namespace {

/// Memory aligned for packs, zero at first.
template <class V>
class Scratch {
 public:
  explicit Scratch(int64_t size)
      : data_(static_cast<V*>(::operator new(static_cast<unsigned long>(size) * sizeof(V), alignment))) {
    for (int64_t i = 0; i < size; ++i) data_[i] = V{};
  }
  ~Scratch() { ::operator delete(data_, alignment); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  V* data() { return data_; }

 private:
  static constexpr std::align_val_t alignment{64};
  V* data_;
};

/// The parameters of a pack of elements, with exponentials in the place of raw sizes.
template <class T>
class Block {
 public:
  using V = Pack<T>;

  /// `values` holds 3 K + 1 packs, the raw parameters first; it is used up.
  DIFFEO_HD Block(V* values, Tails tails, const Frame<T>& frame, int bins)
      : values_(values), bins_(bins), first_slope_(2 * bins - (tails == Tails::linear ? 1 : 0)), frame_(frame) {
    // Ends without a slope of their own may hold any number; circular ends are one knot.
    if (tails == Tails::linear) values[3 * bins - 1] = all<V>(0);
    if (tails == Tails::circular) values[3 * bins] = values[2 * bins];
    per_width_ = exponentials(values, bins, frame.sharpness);
    per_height_ = exponentials(values + bins, bins, frame.sharpness);
    spread_width_ = frame.spread_width * per_width_;
    spread_height_ = frame.spread_height * per_height_;
  }

  DIFFEO_HD V width(int k) const { return frame_.least_width + spread_width_ * values_[k]; }
  DIFFEO_HD V height(int k) const { return frame_.least_height + spread_height_ * values_[bins_ + k]; }
  DIFFEO_HD V slope(int k) const { return values_[first_slope_ + k]; }

  /// Puts the derivatives by raw sizes in the place of the sizes, from those by size: width(k), height(k).
  template <class ByWidth, class ByHeight>
  DIFFEO_HD void put_by_sizes(const ByWidth& by_width, const ByHeight& by_height) {
    put_by_raw(values_, per_width_, frame_.sharpness * spread_width_, by_width);
    put_by_raw(values_ + bins_, per_height_, frame_.sharpness * spread_height_, by_height);
  }

 private:
  /// e^(sharpness (raw - largest)) in place; gives 1 / their sum.
  static DIFFEO_HD V exponentials(V* raw, int bins, T sharpness) {
    V top = raw[0], sum = all<V>(0);
    for (int k = 1; k < bins; ++k) top = larger(top, raw[k]);
    for (int k = 0; k < bins; ++k) {
      raw[k] = exp_nonpositive(sharpness * (raw[k] - top));
      sum += raw[k];
    }
    return T(1) / sum;
  }

  template <class BySize>
  DIFFEO_HD void put_by_raw(V* values, V per_sum, V spread, const BySize& by_size) const {
    V mean = all<V>(0);
    for (int k = 0; k < bins_; ++k) mean += values[k] * by_size(k);
    mean *= per_sum;
    for (int k = 0; k < bins_; ++k) values[k] *= spread * (by_size(k) - mean);
  }

  V* values_;
  int bins_, first_slope_;
  const Frame<T>& frame_;
  V per_width_, per_height_, spread_width_, spread_height_;
};

inline int64_t parameters_of(Tails tails, int64_t bins) {
  return 3 * bins + (tails == Tails::linear ? -1 : tails == Tails::none ? 1 : 0);
}

/// `fixed_bins` is the number of bins, or 0 where it is known only now.
template <class T, int fixed_bins, bool inverse>
void forward(const Pass<T>& pass, int64_t begin, int64_t end) {
  using V = Pack<T>;
  constexpr int64_t lanes = pack_size<T>, chunk = 1024;
  const int bins = fixed_bins > 0 ? fixed_bins : static_cast<int>(pass.shape.bins);
  const int64_t size = parameters_of(pass.shape.tails, bins), last = end * pass.columns;
  const auto frame = frame_of<T>(pass.shape);
  Scratch<V> scratch(3 * bins + 1);
  alignas(64) T log_slopes[chunk];
  RowSums<T> rows(pass.log_det + begin, pass.columns);
  for (int64_t first = begin * pass.columns; first < last; first += chunk) {
    const int64_t here = last - first < chunk ? last - first : chunk;
    for (int64_t i = 0; i < here; i += lanes) {
      const int64_t count = here - i < lanes ? here - i : lanes;
      load_transposed<T>(pass.parameters + (first + i) * size, count, size, scratch.data());
      const Block<T> block(scratch.data(), pass.shape.tails, frame, bins);
      const auto point = map<inverse>(block, load_some<T>(pass.x + first + i, count), frame, bins);
      store_some<T>(pass.value + first + i, point.value, count);
      store(log_slopes + i, point.log_slope);
    }
    rows.add(log_slopes, here);
  }
}

/// Parameters that all rows share: lanes are rows, and the knots of a column are made once for many of them.
template <class T, bool inverse>
void forward_shared(const Pass<T>& pass, int64_t begin, int64_t end) {
  using V = Pack<T>;
  constexpr int64_t lanes = pack_size<T>, chunk = rows_of_shared_block;
  const int bins = static_cast<int>(pass.shape.bins);
  const int64_t size = parameters_of(pass.shape.tails, bins), columns = pass.columns;
  const auto frame = frame_of<T>(pass.shape);
  Scratch<V> scratch(3 * bins + 1);
  for (int64_t first = begin; first < end; first += chunk) {
    const int64_t here = end - first < chunk ? end - first : chunk;
    double totals[chunk + lanes] = {};
    for (int64_t column = 0; column < columns; ++column) {
      for (int64_t j = 0; j < size; ++j) scratch.data()[j] = all<V>(pass.parameters[column * size + j]);
      const Block<T> block(scratch.data(), pass.shape.tails, frame, bins);
      for (int64_t i = 0; i < here; i += lanes) {
        const int64_t count = here - i < lanes ? here - i : lanes, at = (first + i) * columns + column;
        const auto point = map<inverse>(block, load_some<T>(pass.x + at, count, columns), frame, bins);
        store_some<T>(pass.value + at, point.value, count, columns);
        for (int64_t v = 0; v < lanes; ++v) totals[i + v] += static_cast<double>(point.log_slope[v]);
      }
    }
    for (int64_t i = 0; i < here; ++i) pass.log_det[first + i] = static_cast<T>(totals[i]);
  }
}

template <class T, int fixed_bins, bool inverse>
void backward(const Pass<T>& pass, int64_t begin, int64_t end) {
  using V = Pack<T>;
  constexpr int64_t lanes = pack_size<T>;
  const int bins = fixed_bins > 0 ? fixed_bins : static_cast<int>(pass.shape.bins);
  const auto tails = pass.shape.tails;
  const int64_t size = parameters_of(tails, bins), last = end * pass.columns;
  const auto frame = frame_of<T>(pass.shape);
  Scratch<V> scratch(3 * bins + 1);
  V* values = scratch.data();
  int64_t row = begin, column = 0;
  for (int64_t first = begin * pass.columns; first < last; first += lanes) {
    const int64_t count = last - first < lanes ? last - first : lanes;
    alignas(64) T by_log_slope[lanes] = {};
    for (int64_t v = 0; v < count; ++v) {
      by_log_slope[v] = pass.by_log_det[row];
      if (++column == pass.columns) ++row, column = 0;
    }
    load_transposed<T>(pass.parameters + first * size, count, size, values);
    Block<T> block(values, tails, frame, bins);
    const auto g = map_back<inverse>(block, load_some<T>(pass.x + first, count),
                                     load_some<T>(pass.by_value + first, count), load<V>(by_log_slope), frame, bins);
    store_some<T>(pass.by_x + first, g.given, count);
    block.put_by_sizes([&](int k) { return by_size(g.index, g.x0, g.x1, k); },
                       [&](int k) { return by_size(g.index, g.y0, g.y1, k); });
    const int first_knot = tails == Tails::linear ? 1 : 0;
    for (int64_t j = 2 * bins; j < size; ++j) values[j] = by_slope(g, static_cast<int>(j) - 2 * bins + first_knot);
    if (tails == Tails::circular) values[2 * bins] += by_slope(g, bins);
    store_transposed<T>(pass.by_parameters + first * size, count, size, values);
  }
}

template <class T, bool inverse>
void backward_shared(const Pass<T>& pass, int64_t rows, int64_t begin, int64_t end) {
  using V = Pack<T>;
  constexpr int64_t lanes = pack_size<T>;
  const int bins = static_cast<int>(pass.shape.bins);
  const auto tails = pass.shape.tails;
  const int64_t size = parameters_of(tails, bins), columns = pass.columns;
  const auto frame = frame_of<T>(pass.shape);
  Scratch<V> scratch(3 * bins + 1), sums(3 * bins + 1);
  for (int64_t number = begin; number < end; ++number) {
    const int64_t first = number * rows_of_shared_block;
    const int64_t here = rows - first < rows_of_shared_block ? rows - first : rows_of_shared_block;
    for (int64_t column = 0; column < columns; ++column) {
      for (int64_t j = 0; j < size; ++j) scratch.data()[j] = all<V>(pass.parameters[column * size + j]);
      for (int64_t j = 0; j <= 3 * bins; ++j) sums.data()[j] = all<V>(0);
      Block<T> block(scratch.data(), tails, frame, bins);
      V *by_width = sums.data(), *by_height = by_width + bins, *by_slopes = by_height + bins;
      for (int64_t i = 0; i < here; i += lanes) {
        const int64_t count = here - i < lanes ? here - i : lanes, at = (first + i) * columns + column;
        V by_value = load_some<T>(pass.by_value + at, count, columns),
          by_log_slope = load_some<T>(pass.by_log_det + first + i, count);
        const auto g =
            map_back<inverse>(block, load_some<T>(pass.x + at, count, columns), by_value, by_log_slope, frame, bins);
        store_some<T>(pass.by_x + at, g.given, count, columns);
        const auto add = [&](V* sum, V more) {
          if (count == lanes)
            *sum += more;
          else
            for (int64_t v = 0; v < count; ++v) (*sum)[v] += more[v];
        };
        for (int k = 0; k < bins; ++k) add(by_width + k, by_size(g.index, g.x0, g.x1, k));
        for (int k = 0; k < bins; ++k) add(by_height + k, by_size(g.index, g.y0, g.y1, k));
        for (int k = 0; k <= bins; ++k) add(by_slopes + k, by_slope(g, k));
      }
      block.put_by_sizes([&](int k) { return by_width[k]; }, [&](int k) { return by_height[k]; });
      const int first_knot = tails == Tails::linear ? 1 : 0;
      for (int64_t j = 2 * bins; j < size; ++j) scratch.data()[j] = by_slopes[j - 2 * bins + first_knot];
      if (tails == Tails::circular) scratch.data()[2 * bins] += by_slopes[bins];
      T* to = pass.by_parameters + (number * columns + column) * size;
      for (int64_t j = 0; j < size; ++j) {
        double sum = 0;
        for (int64_t v = 0; v < lanes; ++v) sum += static_cast<double>(scratch.data()[j][v]);
        to[j] = static_cast<T>(sum);
      }
    }
  }
}

template <class T, int bins>
void forward_of(const Pass<T>& pass, int64_t begin, int64_t end) {
  (pass.inverse ? forward<T, bins, true> : forward<T, bins, false>)(pass, begin, end);
}

template <class T, int bins>
void backward_of(const Pass<T>& pass, int64_t begin, int64_t end) {
  (pass.inverse ? backward<T, bins, true> : backward<T, bins, false>)(pass, begin, end);
}

}  // namespace

template <class T>
void forward(const Pass<T>& pass, int64_t begin, int64_t end) {
  if (pass.shared) return (pass.inverse ? forward_shared<T, true> : forward_shared<T, false>)(pass, begin, end);
  if (pass.shape.bins == 8) return forward_of<T, 8>(pass, begin, end);
  if constexpr (sizeof(T) == 4) {
    if (pass.shape.bins == 4) return forward_of<T, 4>(pass, begin, end);
    if (pass.shape.bins == 10) return forward_of<T, 10>(pass, begin, end);
    if (pass.shape.bins == 16) return forward_of<T, 16>(pass, begin, end);
  }
  forward_of<T, 0>(pass, begin, end);
}

template <class T>
void backward(const Pass<T>& pass, int64_t begin, int64_t end) {
  if (pass.shape.bins == 8) return backward_of<T, 8>(pass, begin, end);
  if constexpr (sizeof(T) == 4) {
    if (pass.shape.bins == 4) return backward_of<T, 4>(pass, begin, end);
    if (pass.shape.bins == 10) return backward_of<T, 10>(pass, begin, end);
    if (pass.shape.bins == 16) return backward_of<T, 16>(pass, begin, end);
  }
  backward_of<T, 0>(pass, begin, end);
}

template <class T>
void backward_shared(const Pass<T>& pass, int64_t rows, int64_t begin, int64_t end) {
  (pass.inverse ? backward_shared<T, true> : backward_shared<T, false>)(pass, rows, begin, end);
}

const CpuKernels<float>& kernels(float) {
  static constexpr CpuKernels<float> table{forward<float>, backward<float>, backward_shared<float>};
  return table;
}
const CpuKernels<double>& kernels(double) {
  static constexpr CpuKernels<double> table{forward<double>, backward<double>, backward_shared<double>};
  return table;
}

}  // namespace diffeo::rq_spline::DIFFEO_CAPABILITY
