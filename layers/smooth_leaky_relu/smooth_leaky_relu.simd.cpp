// The smooth leaky rectifier's passes over rows on the CPU, compiled once for each instruction set.
#include "diffeo/layers/base/rows.h"
#include "diffeo/layers/smooth_leaky_relu/smooth_leaky_relu_cpu.h"

namespace diffeo::smooth_leaky_relu::DIFFEO_CAPABILITY {
namespace {

using namespace lanes::DIFFEO_CAPABILITY;

/// log(1 + e^x) with derivatives, by e^-|x|, which never overflows.
template <class V>
struct Derivatives {
  V softplus, sigmoid, product;  ///< log(1 + e^x) and its first two derivatives
};

template <class V>
DIFFEO_HD Derivatives<V> derivatives_at(V x) {
  const V zero = all<V>(0), one = all<V>(1);
  const V e = exp_nonpositive(-magnitude(x)), of_magnitude = one / (one + e);
  return {larger(x, zero) + log1p_unit(e), select(x < zero, e * of_magnitude, of_magnitude),
          e * of_magnitude * of_magnitude};
}

constexpr int64_t chunk = 512;  // elements whose contributions to their rows are kept for the sums

/// Calls body(i, place, count) for registers that cover the elements [first, first + here), `place` counted from first.
template <class T, class Body>
DIFFEO_HD void for_registers(int64_t first, int64_t here, const Body& body) {
  constexpr int64_t lanes = pack_size<T>;
  for (int64_t place = 0; place < here; place += lanes)
    body(first + place, place, here - place < lanes ? here - place : lanes);
}

template <class T>
void forward(const Pass<T>& pass, int64_t begin, int64_t end) {
  using V = Pack<T>;
  const int64_t last = end * pass.columns;
  const T below = static_cast<T>(pass.below), bend = static_cast<T>(pass.bend);
  alignas(64) T log_slopes[chunk];
  RowSums<T> rows(pass.log_det + begin, pass.columns);
  for (int64_t first = begin * pass.columns; first < last; first += chunk) {
    const int64_t here = last - first < chunk ? last - first : chunk;
    for_registers<T>(first, here, [&](int64_t i, int64_t place, int64_t count) {
      const auto x = load_some<T>(pass.x + i, count);
      const auto there = derivatives_at<V>(x);
      store_some<T>(pass.value + i, x * below + there.softplus * bend, count);
      store(log_slopes + place, log_positive<V>(there.sigmoid * bend + below));
    });
    rows.add(log_slopes, here);
  }
}

template <class T>
void backward(const Pass<T>& pass, int64_t begin, int64_t end) {
  using V = Pack<T>;
  const int64_t last = end * pass.columns;
  const T below = static_cast<T>(pass.below), bend = static_cast<T>(pass.bend);
  alignas(64) T by_log_slope[chunk] = {};
  RowSpread<T> rows(pass.by_log_det + begin, pass.columns);
  for (int64_t first = begin * pass.columns; first < last; first += chunk) {
    const int64_t here = last - first < chunk ? last - first : chunk;
    rows.take(by_log_slope, here);
    for_registers<T>(first, here, [&](int64_t i, int64_t place, int64_t count) {
      const auto there = derivatives_at<V>(load_some<T>(pass.x + i, count));
      const V slope = there.sigmoid * bend + below, ratio = there.product * bend / slope;
      const auto by_value = load_some<T>(pass.by_value + i, count);
      store_some<T>(pass.by_x + i, by_value * slope + load<V>(by_log_slope + place) * ratio, count);
    });
  }
}

template <class T>
void second(const Pass<T>& pass, int64_t begin, int64_t end) {
  using V = Pack<T>;
  const int64_t last = end * pass.columns;
  const T below = static_cast<T>(pass.below), bend = static_cast<T>(pass.bend);
  alignas(64) T by_log_slope[chunk] = {}, shares[chunk];
  RowSpread<T> rows(pass.by_log_det + begin, pass.columns);
  RowSums<T> sums(pass.along_by_log_det + begin, pass.columns);
  for (int64_t first = begin * pass.columns; first < last; first += chunk) {
    const int64_t here = last - first < chunk ? last - first : chunk;
    rows.take(by_log_slope, here);
    for_registers<T>(first, here, [&](int64_t i, int64_t place, int64_t count) {
      const auto there = derivatives_at<V>(load_some<T>(pass.x + i, count));
      // Derivatives of the map, and of the logarithm of its slope.
      const V slope = there.sigmoid * bend + below, curve = there.product * bend, ratio = curve / slope;
      const V twist = ratio * (all<V>(1) - there.sigmoid - there.sigmoid) - ratio * ratio;
      const auto along = load_some<T>(pass.along + i, count), by_value = load_some<T>(pass.by_value + i, count);
      store_some<T>(pass.along_x + i, along * (by_value * curve + load<V>(by_log_slope + place) * twist), count);
      store_some<T>(pass.along_by_value + i, along * slope, count);
      store(shares + place, along * ratio);
    });
    sums.add(shares, here);
  }
}

}  // namespace

const CpuKernels<float>& kernels(float) {
  static constexpr CpuKernels<float> table{forward<float>, backward<float>, second<float>};
  return table;
}
const CpuKernels<double>& kernels(double) {
  static constexpr CpuKernels<double> table{forward<double>, backward<double>, second<double>};
  return table;
}

}  // namespace diffeo::smooth_leaky_relu::DIFFEO_CAPABILITY
