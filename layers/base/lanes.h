#pragma once

// What the arithmetic of a fused kernel needs besides + - * /, over a lane type V: float or double in a GPU's thread,
// or a SIMD register full of them on the CPU (Pack, in the compiler's own vector types: GCC and Clang lower them to
// whatever instruction set the file is compiled for). A kernel written over V stands once for all of them.
//
// Files compiled for one instruction set see no other header with inline functions: the linker would be free to take
// the AVX-512 copy of such a function for a machine without AVX-512. For the same reason everything here lives in a
// namespace named after the instruction set.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#ifdef __CUDACC__
#define DIFFEO_HD __host__ __device__ __forceinline__
#else
#define DIFFEO_HD inline __attribute__((always_inline))
#endif
#ifndef DIFFEO_CAPABILITY
#define DIFFEO_CAPABILITY portable
#endif

namespace diffeo::lanes::DIFFEO_CAPABILITY {

#if defined(__AVX512F__)
inline constexpr int register_bytes = 64;
#elif defined(__AVX2__)
inline constexpr int register_bytes = 32;
#else
inline constexpr int register_bytes = 16;
#endif

template <class T, int bytes>
struct PackOf {
  typedef T Type __attribute__((vector_size(bytes)));
};
/// One register of T.
template <class T>
using Pack = typename PackOf<T, register_bytes>::Type;
template <class T>
inline constexpr int64_t pack_size = register_bytes / static_cast<int>(sizeof(T));

template <class V, bool scalar = std::is_floating_point_v<V>>
struct LaneOf {
  using Type = V;
};
template <class V>
struct LaneOf<V, false> {
  using Type = std::remove_cv_t<std::remove_reference_t<decltype(std::declval<V>()[0])>>;
};
/// float or double.
template <class V>
using Lane = typename LaneOf<V>::Type;

/// a where `condition` holds, else b. Both are computed.
template <class M, class V>
DIFFEO_HD V select(M condition, V a, V b) {
  return condition ? a : b;
}

/// All lanes `value`.
template <class V>
DIFFEO_HD V all(Lane<V> value) {
  if constexpr (std::is_floating_point_v<V>)
    return value;
  else
    return value - V{};
}

template <class V>
DIFFEO_HD V load(const Lane<V>* from) {
  V value;
  std::memcpy(&value, from, sizeof(V));
  return value;
}
template <class V>
DIFFEO_HD void store(Lane<V>* to, V value) {
  std::memcpy(to, &value, sizeof(V));
}

/// Larger and smaller of two; a NaN in `a` stays.
template <class V>
DIFFEO_HD V larger(V a, V b) {
  return select(a < b, b, a);
}
template <class V>
DIFFEO_HD V smaller(V a, V b) {
  return select(b < a, b, a);
}
template <class V>
DIFFEO_HD V magnitude(V a) {
  return select(a < all<V>(0), -a, a);
}

template <class V>
DIFFEO_HD V square_root(V a) {
  if constexpr (std::is_floating_point_v<V>) {
    return std::sqrt(a);
  } else {
    V root;
    for (unsigned i = 0; i < sizeof(V) / sizeof(a[0]); ++i)
      if constexpr (std::is_same_v<Lane<V>, float>)
        root[i] = __builtin_sqrtf(a[i]);
      else
        root[i] = __builtin_sqrt(a[i]);
    return root;
  }
}

/// c[0] + c[1] x + ..., by Horner.
template <class V, int size>
DIFFEO_HD V polynomial(V x, const Lane<V> (&c)[size]) {
  V sum = all<V>(c[size - 1]);
#ifdef __CUDACC__
#pragma unroll
#else
#pragma GCC unroll 16
#endif
  for (int i = size - 2; i >= 0; --i) sum = sum * x + c[i];
  return sum;
}

template <class V>
using Bits = typename PackOf<std::conditional_t<sizeof(Lane<V>) == 4, int32_t, int64_t>, sizeof(V)>::Type;

/// The largest x for which both e^x and e^-x are normal numbers, less a little.
template <class T>
inline constexpr T largest_exponent = sizeof(T) == 4 ? T(87) : T(708);

/// e^x for |x| <= largest_exponent, within 1 ulp.
template <class V>
DIFFEO_HD V exp_moderate(V x) {
  if constexpr (std::is_floating_point_v<V>) {
    return std::exp(x);
  } else if constexpr (std::is_same_v<Lane<V>, float>) {
    // x = n ln 2 + r, |r| <= ln 2 / 2; adding 1.5 * 2^23 rounds to an integer n, which is left in the lowest bits.
    const V shifted = x * 1.44269504088896341f + 12582912.0f;
    const V n = shifted - 12582912.0f;
    const V r = (x - n * 0.693359375f) + n * 2.12194440054690583e-4f;
    constexpr float c[] = {1.0f, 1.0f, 0.4999999341f, 0.1666652011f, 0.04166839422f, 0.008368780429f, 0.001381446674f};
    return (V)((Bits<V>)polynomial(r, c) + ((Bits<V>)shifted << 23));
  } else {
    const V shifted = x * 1.44269504088896340736 + 6755399441055744.0;
    const V n = shifted - 6755399441055744.0;
    const V r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    constexpr double c[] = {
        1.,        1.,         1. / 2,      1. / 6,       1. / 24,       1. / 120,       1. / 720,
        1. / 5040, 1. / 40320, 1. / 362880, 1. / 3628800, 1. / 39916800, 1. / 479001600, 1. / 6227020800};
    return (V)((Bits<V>)polynomial(r, c) + ((Bits<V>)shifted << 52));
  }
}

/// e^x for x <= 0, within 1 ulp; below -86 (float) or -700 (double) a register's lanes stay at that tiny value.
template <class V>
DIFFEO_HD V exp_nonpositive(V x) {
  if constexpr (std::is_floating_point_v<V>) {
    return std::exp(x);
  } else {
    const V least = all<V>(std::is_same_v<Lane<V>, float> ? Lane<V>(-86) : Lane<V>(-700));
    return exp_moderate(select(x < least, least, x));
  }
}

/// log(1 + f) + e log 2 for f in [sqrt(1/2) - 1, sqrt(2) - 1].
template <class V>
DIFFEO_HD V log_of(V f, V e) {
  const V f2 = f * f;
  if constexpr (std::is_same_v<Lane<V>, float>) {
    constexpr float c[] = {0.3333333166f, -0.2500082272f, 0.2000123337f, -0.1662329832f,
                           0.142015533f,  -0.1316058322f, 0.1276332564f, -0.07635651392f};
    const V tail = polynomial(f, c) * f * f2 + e * -2.12194440054690583e-4f - f2 * 0.5f;
    return (f + tail) + e * 0.693359375f;
  } else {
    // With s = f / (2 + f): log(1 + f) = 2 atanh(s) = f - s (f - 2 s^2 (1/3 + s^2 / 5 + ...)).
    constexpr double c[] = {2. / 3,  2. / 5,  2. / 7,  2. / 9,  2. / 11, 2. / 13,
                            2. / 15, 2. / 17, 2. / 19, 2. / 21, 2. / 23};
    const V s = f / (2.0 + f), s2 = s * s;
    return e * 6.93147180369123816490e-01 + (f - (s * (f - s2 * polynomial(s2, c)) - e * 1.90821492927058770002e-10));
  }
}

/// log x of a positive, normal number, within 2 ulp; NaN stays NaN.
template <class V>
DIFFEO_HD V log_positive(V x) {
  if constexpr (std::is_floating_point_v<V>) {
    return std::log(x);
  } else {
    constexpr bool single = std::is_same_v<Lane<V>, float>;
    using Int = std::conditional_t<single, int32_t, int64_t>;
    constexpr int digits = single ? 23 : 52;
    constexpr Int half_root = single ? static_cast<Int>(0x3f3504f3) : static_cast<Int>(0x3fe6a09e667f3bcd);
    // x = 2^e m with m in [sqrt(1/2), sqrt(2)).
    const Bits<V> above = (Bits<V>)x - half_root;
    const Bits<V> mantissa = (above & ((Int{1} << digits) - 1)) + half_root;
    const V e = __builtin_convertvector(above >> digits, V);
    return select(x == x, log_of<V>((V)mantissa - Lane<V>(1), e), x);
  }
}

/// log(1 + z) for z in [0, 1], within 2 ulp.
template <class V>
DIFFEO_HD V log1p_unit(V z) {
  if constexpr (std::is_floating_point_v<V>) {
    return std::log1p(z);
  } else {
    using T = Lane<V>;
    const auto big = z > all<V>(T(0.41421356237));
    return log_of<V>(select(big, (z - T(1)) * T(0.5), z), select(big, all<V>(1), all<V>(0)));
  }
}

}  // namespace diffeo::lanes::DIFFEO_CAPABILITY
