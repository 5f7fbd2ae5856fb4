// The affine map's passes over rows on the CPU, compiled once for each instruction set.
#include <new>

#include "diffeo/layers/affine/affine_cpu.h"
#include "diffeo/layers/affine/affine_kernel.h"
#include "diffeo/layers/base/rows.h"

namespace diffeo::affine::DIFFEO_CAPABILITY {
namespace {

template <class V>
struct Parameters {
  V a, t;
};

template <int which, class V, int... i>
DIFFEO_HD V every_other(V low, V high, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(low, high, (2 * i + which)...);
}
template <int half, class V, int... i>
DIFFEO_HD V in_turn(V a, V t, std::integer_sequence<int, i...>) {
  constexpr int lanes = sizeof...(i);
  return __builtin_shufflevector(a, t, (half * (lanes / 2) + i / 2 + (i % 2) * lanes)...);
}
template <class T>
using LaneNumbers = std::make_integer_sequence<int, static_cast<int>(pack_size<T>)>;

/// From and to pairs (a, t) that lie one after the other.
template <class T>
DIFFEO_HD Parameters<Pack<T>> load_pairs(const T* from, int64_t count) {
  constexpr int64_t lanes = pack_size<T>;
  if (count < lanes) return {load_some<T>(from, count, 2), load_some<T>(from + 1, count, 2)};
  const auto low = load<Pack<T>>(from), high = load<Pack<T>>(from + lanes);
  return {every_other<0>(low, high, LaneNumbers<T>()), every_other<1>(low, high, LaneNumbers<T>())};
}
template <class T>
DIFFEO_HD void store_pairs(T* to, const Adjoint<Pack<T>>& by, int64_t count) {
  constexpr int64_t lanes = pack_size<T>;
  if (count < lanes) {
    store_some<T>(to, by.a, count, 2);
    return store_some<T>(to + 1, by.t, count, 2);
  }
  store(to, in_turn<0>(by.a, by.t, LaneNumbers<T>()));
  store(to + lanes, in_turn<1>(by.a, by.t, LaneNumbers<T>()));
}

constexpr int64_t chunk = 512;  // elements whose log slopes are kept for the sums along rows

template <class T, class Kind>
void forward(const Pass<T>& pass, int64_t begin, int64_t end) {
  constexpr int64_t lanes = pack_size<T>;
  const int64_t last = end * pass.columns;
  const T cap = static_cast<T>(pass.form.cap);
  alignas(64) T log_slopes[chunk];
  RowSums<T> rows(pass.log_det + begin, pass.columns);
  for (int64_t first = begin * pass.columns; first < last; first += chunk) {
    const int64_t here = last - first < chunk ? last - first : chunk;
    for (int64_t i = 0; i < here; i += lanes) {
      const int64_t count = here - i < lanes ? here - i : lanes;
      const auto [a, t] = load_pairs<T>(pass.parameters + 2 * (first + i), count);
      const auto c = scaled<Kind::scale, Kind::inverse>(a, cap);
      const auto x = load_some<T>(pass.x + first + i, count);
      store_some<T>(pass.value + first + i, map<Kind::inverse>(x, c.factor, t), count);
      store(log_slopes + i, Kind::inverse ? -c.log : c.log);
    }
    rows.add(log_slopes, here);
  }
}

template <class T, class Kind>
void backward(const Pass<T>& pass, int64_t begin, int64_t end) {
  constexpr int64_t lanes = pack_size<T>;
  const int64_t last = end * pass.columns;
  const T cap = static_cast<T>(pass.form.cap);
  alignas(64) T by_log_slope[chunk] = {};
  RowSpread<T> rows(pass.by_log_det + begin, pass.columns);
  for (int64_t first = begin * pass.columns; first < last; first += chunk) {
    const int64_t here = last - first < chunk ? last - first : chunk;
    rows.take(by_log_slope, here);
    for (int64_t i = 0; i < here; i += lanes) {
      const int64_t count = here - i < lanes ? here - i : lanes;
      const auto a = load_pairs<T>(pass.parameters + 2 * (first + i), count).a;
      const auto c = scaled<Kind::scale, Kind::inverse>(a, cap);
      const auto x = load_some<T>(pass.x + first + i, count), by_value = load_some<T>(pass.by_value + first + i, count);
      store_some<T>(pass.by_x + first + i, by_value * c.factor, count);
      const auto by = map_back<Kind::inverse>(c, by_value, by_value * x, load<Pack<T>>(by_log_slope + i));
      store_pairs<T>(pass.by_parameters + 2 * (first + i), by, count);
    }
  }
}

/// Numbers for each column, written out again and again until a row starts where a register does: rows are then passed
/// over in full registers, however few columns they have.
template <class T>
class Tiled {
 public:
  explicit Tiled(int64_t columns) : columns_(columns), size_(columns) {
    while (size_ % pack_size<T> != 0) size_ += columns;
    data_ = static_cast<T*>(::operator new(static_cast<unsigned long>(size_) * sizeof(T), alignment));
    fill(T(0));
  }
  ~Tiled() { ::operator delete(data_, alignment); }
  Tiled(const Tiled&) = delete;
  Tiled& operator=(const Tiled&) = delete;

  T* data() { return data_; }
  int64_t size() const { return size_; }
  void fill(T value) {
    for (int64_t i = 0; i < size_; ++i) data_[i] = value;
  }
  /// Puts copies of the first row after it.
  void repeat() {
    for (int64_t i = columns_; i < size_; ++i) data_[i] = data_[i - columns_];
  }
  /// The sum of what lies in a column.
  T sum(int64_t column) const {
    double total = 0;
    for (int64_t i = column; i < size_; i += columns_) total += static_cast<double>(data_[i]);
    return static_cast<T>(total);
  }

 private:
  static constexpr std::align_val_t alignment{64};
  int64_t columns_, size_;
  T* data_;
};

/// Calls body(i, place, count) for registers that cover [0, size), `place` being where a Tiled has the numbers of
/// element i, i + 1, ...
template <class T, class Body>
DIFFEO_HD void for_registers(int64_t size, int64_t period, const Body& body) {
  constexpr int64_t lanes = pack_size<T>;
  int64_t place = 0, i = 0;
  for (; i + lanes <= size; i += lanes) {
    body(i, place, lanes);
    place += lanes;
    if (place == period) place = 0;
  }
  if (i < size) body(i, place, size - i);
}

/// What a shared parameter makes, the same in every lane: scalars would call the standard library's inline functions.
template <class T, class Kind>
DIFFEO_HD Scaled<Pack<T>> scaled_column(const Pass<T>& pass, int64_t column) {
  return scaled<Kind::scale, Kind::inverse>(all<Pack<T>>(pass.parameters[2 * column]), static_cast<T>(pass.form.cap));
}

/// e^s or e^-s for every column, and the sum of s over them.
template <class T, class Kind>
double put_factors(const Pass<T>& pass, Tiled<T>& factors) {
  double total = 0;
  for (int64_t column = 0; column < pass.columns; ++column) {
    const auto c = scaled_column<T, Kind>(pass, column);
    factors.data()[column] = c.factor[0];
    total += static_cast<double>(c.log[0]);
  }
  factors.repeat();
  return total;
}

/// Parameters that all rows share.
template <class T, class Kind>
void forward_shared(const Pass<T>& pass, int64_t begin, int64_t end) {
  Tiled<T> factors(pass.columns), shifts(pass.columns);
  const double total = put_factors<T, Kind>(pass, factors);
  for (int64_t column = 0; column < pass.columns; ++column) shifts.data()[column] = pass.parameters[2 * column + 1];
  shifts.repeat();
  const T* x = pass.x + begin * pass.columns;
  T* value = pass.value + begin * pass.columns;
  for_registers<T>((end - begin) * pass.columns, factors.size(), [&](int64_t i, int64_t place, int64_t count) {
    const auto factor = load<Pack<T>>(factors.data() + place), t = load<Pack<T>>(shifts.data() + place);
    store_some<T>(value + i, map<Kind::inverse>(load_some<T>(x + i, count), factor, t), count);
  });
  for (int64_t row = begin; row < end; ++row) pass.log_det[row] = static_cast<T>(Kind::inverse ? -total : total);
}

template <class T, class Kind>
void backward_shared(const Pass<T>& pass, int64_t rows, int64_t begin, int64_t end) {
  constexpr int64_t lanes = pack_size<T>;
  Tiled<T> factors(pass.columns), by_values(pass.columns), by_values_x(pass.columns);
  put_factors<T, Kind>(pass, factors);
  for (int64_t number = begin; number < end; ++number) {
    const int64_t first = number * rows_of_shared_block;
    const int64_t here = rows - first < rows_of_shared_block ? rows - first : rows_of_shared_block;
    const T *x = pass.x + first * pass.columns, *by_value = pass.by_value + first * pass.columns;
    T* by_x = pass.by_x + first * pass.columns;
    by_values.fill(T(0));
    by_values_x.fill(T(0));
    for_registers<T>(here * pass.columns, factors.size(), [&](int64_t i, int64_t place, int64_t count) {
      auto g = load_some<T>(by_value + i, count);
      const auto given = load_some<T>(x + i, count);
      store_some<T>(by_x + i, g * load<Pack<T>>(factors.data() + place), count);
      auto gx = g * given;
      for (int64_t v = count; v < lanes; ++v) g[v] = gx[v] = 0;
      store(by_values.data() + place, load<Pack<T>>(by_values.data() + place) + g);
      store(by_values_x.data() + place, load<Pack<T>>(by_values_x.data() + place) + gx);
    });
    double by_log_det = 0;
    for (int64_t row = first; row < first + here; ++row) by_log_det += static_cast<double>(pass.by_log_det[row]);
    for (int64_t column = 0; column < pass.columns; ++column) {
      const auto c = scaled_column<T, Kind>(pass, column);
      const auto by =
          map_back<Kind::inverse>(c, all<Pack<T>>(by_values.sum(column)), all<Pack<T>>(by_values_x.sum(column)),
                                  all<Pack<T>>(static_cast<T>(by_log_det)));
      T* to = pass.by_parameters + 2 * (number * pass.columns + column);
      to[0] = by.a[0];
      to[1] = by.t[0];
    }
  }
}

}  // namespace

template <class T>
void forward(const Pass<T>& pass, int64_t begin, int64_t end) {
  with_kind(pass.form.scale, pass.inverse, [&](auto kind) {
    (pass.shared ? forward_shared<T, decltype(kind)> : forward<T, decltype(kind)>)(pass, begin, end);
  });
}

template <class T>
void backward(const Pass<T>& pass, int64_t begin, int64_t end) {
  with_kind(pass.form.scale, pass.inverse, [&](auto kind) { backward<T, decltype(kind)>(pass, begin, end); });
}

template <class T>
void backward_shared(const Pass<T>& pass, int64_t rows, int64_t begin, int64_t end) {
  with_kind(pass.form.scale, pass.inverse,
            [&](auto kind) { backward_shared<T, decltype(kind)>(pass, rows, begin, end); });
}

const CpuKernels<float>& kernels(float) {
  static constexpr CpuKernels<float> table{forward<float>, backward<float>, backward_shared<float>};
  return table;
}
const CpuKernels<double>& kernels(double) {
  static constexpr CpuKernels<double> table{forward<double>, backward<double>, backward_shared<double>};
  return table;
}

}  // namespace diffeo::affine::DIFFEO_CAPABILITY
