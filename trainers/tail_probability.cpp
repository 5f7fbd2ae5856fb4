#include "diffeo/trainers/tail_probability.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "diffeo/layers/base/error.h"

namespace diffeo {
namespace {

/// The continued fraction of the incomplete beta function (NIST Handbook, 8.17.22), from the top by the modified method
/// of Lentz. Converges quickly for t < (a + 1) / (a + b + 2).
double beta_fraction(double t, double a, double b) {
  constexpr double tiny = 1e-300;
  const int most = static_cast<int>(1000 + 10 * std::sqrt(std::max(a, b)));  // what it takes grows as the root
  const auto away_from_zero = [](double value) { return std::abs(value) < tiny ? tiny : value; };
  double numerator = 1, denominator = 1 / away_from_zero(1 - (a + b) * t / (a + 1)), value = denominator;
  for (int m = 1; m <= most; ++m) {
    const auto multiply = [&](double coefficient) {
      denominator = 1 / away_from_zero(1 + coefficient * denominator);
      numerator = away_from_zero(1 + coefficient / numerator);
      const double factor = denominator * numerator;
      value *= factor;
      return factor;
    };
    multiply(m * (b - m) * t / ((a + 2 * m - 1) * (a + 2 * m)));
    const double last = multiply(-(a + m) * (a + b + m) * t / ((a + 2 * m) * (a + 2 * m + 1)));
    if (std::abs(last - 1) < 4 * std::numeric_limits<double>::epsilon()) break;
  }
  return value;
}

/// I_t(a, b), given t and 1 - t, neither of which has lost digits.
double incomplete_beta(double t, double rest, double a, double b) {
  if (t <= 0) return 0;
  if (rest <= 0) return 1;
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(t) + b * std::log(rest));
  return t < (a + 1) / (a + b + 2) ? front * beta_fraction(t, a, b) / a : 1 - front * beta_fraction(rest, b, a) / b;
}

}  // namespace

double f_tail(double f, double first, double second) {
  check(first > 0 && second > 0, "F distribution: degrees of freedom must be positive, got ", first, " and ", second);
  if (std::isnan(f)) return f;
  if (f <= 0) return 1;
  if (std::isinf(f)) return 0;
  const double total = second + first * f;
  return incomplete_beta(second / total, first * f / total, second / 2, first / 2);
}

double incomplete_beta(double a, double b, double x) {
  check(a > 0 && b > 0 && x >= 0 && x <= 1, "incomplete beta function: needs a, b > 0 and x in [0, 1], got ", a, ", ",
        b, ", ", x);
  return incomplete_beta(x, 1 - x, a, b);
}

double beta_quantile(double share, double a, double b) {
  check(share >= 0 && share <= 1, "beta quantile: a share lies in [0, 1], got ", share);
  // By the logarithm: quantiles of small a lie many orders of magnitude below 1.
  double low = std::log(1e-300), high = 0;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (incomplete_beta(a, b, std::exp(middle)) < share ? low : high) = middle;
  }
  return std::exp((low + high) / 2);
}

double chi_squared_tail(double x) { return std::erfc(std::sqrt(std::fmax(x, 0) / 2)); }

}  // namespace diffeo
