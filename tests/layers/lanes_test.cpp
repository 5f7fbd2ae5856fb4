// The elementary functions that kernels use, against those of the standard library in double precision (float), or in
// long double (double), in units in the last place.
#include "diffeo/layers/base/lanes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "diffeo/layers/base/transpose.h"

namespace diffeo::lanes::portable {
namespace {

template <class T>
using Exact = std::conditional_t<sizeof(T) == 4, double, long double>;

/// The largest error of `got` over many points, in units in the last place of the result.
template <class T, class Draw, class Got, class Want>
double worst(Draw draw, Got got, Want want) {
  std::mt19937_64 random(1);
  double most = 0;
  for (int i = 0; i < 200000; ++i) {
    Pack<T> x;
    for (int64_t v = 0; v < pack_size<T>; ++v) x[v] = draw(random);
    const Pack<T> y = got(x);
    for (int64_t v = 0; v < pack_size<T>; ++v) {
      const Exact<T> exact = want(static_cast<Exact<T>>(x[v]));
      const T near = std::abs(static_cast<T>(exact));
      const Exact<T> unit = std::nextafter(near, std::numeric_limits<T>::infinity()) - near;
      most = std::max(most, static_cast<double>(std::abs(static_cast<Exact<T>>(y[v]) - exact) / unit));
    }
  }
  return most;
}

template <class T>
class Lanes : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Lanes, Types);

TYPED_TEST(Lanes, FunctionsAreWithinTwoUnitsInTheLastPlace) {
  using T = TypeParam;
  using E = Exact<T>;
  const T least = sizeof(T) == 4 ? -80 : -690;
  const auto between = [](T lower, T upper) {
    return [=](std::mt19937_64& random) { return std::uniform_real_distribution<T>(lower, upper)(random); };
  };
  const auto exp = [](E x) { return std::exp(x); };
  const auto exp_of = [](Pack<T> x) { return exp_nonpositive(x); };
  EXPECT_LE((worst<T>(between(least, 0), exp_of, exp)), 1.5);
  EXPECT_LE((worst<T>(between(-1, 0), exp_of, exp)), 1.5);
  const auto exp_of_any = [](Pack<T> x) { return exp_moderate(x); };
  EXPECT_LE((worst<T>(between(-largest_exponent<T>, largest_exponent<T>), exp_of_any, exp)), 1.5);
  const auto log = [](E x) { return std::log(x); };
  const auto log_of_x = [](Pack<T> x) { return log_positive(x); };
  EXPECT_LE((worst<T>(between(T(0.5), 2), log_of_x, log)), 2);
  EXPECT_LE((worst<T>(between(T(1e-9), T(1e9)), log_of_x, log)), 2);
  EXPECT_LE((worst<T>([&](auto& random) { return std::exp2(between(-100, 100)(random)); }, log_of_x, log)), 2);
  const auto log1p = [](E x) { return std::log1p(x); };
  const auto log1p_of = [](Pack<T> x) { return log1p_unit(x); };
  EXPECT_LE((worst<T>(between(0, 1), log1p_of, log1p)), 2);
  EXPECT_LE((worst<T>([&](auto& random) { return std::exp2(between(-60, 0)(random)); }, log1p_of, log1p)), 2);
}

TYPED_TEST(Lanes, NaNsGoThroughAndExtremesAreTame) {
  using T = TypeParam;
  using V = Pack<T>;
  const V nan = all<V>(std::numeric_limits<T>::quiet_NaN()), lowest = all<V>(-std::numeric_limits<T>::infinity());
  for (const V y : {exp_nonpositive(nan), log_positive(nan), log1p_unit(nan), larger(nan, all<V>(1)),
                    smaller(nan, all<V>(1)), square_root(nan), magnitude(nan)})
    EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_LT(exp_nonpositive(lowest)[0], 1e-37);
  EXPECT_GE(exp_nonpositive(lowest)[0], 0);
  EXPECT_EQ(exp_nonpositive(all<V>(0))[0], 1);
  EXPECT_EQ(log_positive(all<V>(1))[0], 0);
  EXPECT_EQ(log1p_unit(all<V>(0))[0], 0);
}

TYPED_TEST(Lanes, TransposingThereAndBackChangesNothing) {
  using T = TypeParam;
  constexpr int64_t lanes = pack_size<T>;
  for (int64_t size = 1; size <= 13; ++size)
    for (int64_t count = 1; count <= lanes; ++count) {
      std::vector<T> rows(count * size), back(count * size, T(-1));
      for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<T>(i);
      Pack<T> columns[13];
      load_transposed<T>(rows.data(), count, size, columns);
      for (int64_t v = 0; v < lanes; ++v)
        for (int64_t j = 0; j < size; ++j) EXPECT_EQ(columns[j][v], rows[std::min(v, count - 1) * size + j]);
      store_transposed<T>(back.data(), count, size, columns);
      EXPECT_EQ(back, rows);
    }
}

}  // namespace
}  // namespace diffeo::lanes::portable
