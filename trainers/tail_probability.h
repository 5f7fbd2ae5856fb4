#pragma once

namespace diffeo {

/// P(F > f) for an F-distributed variable with `first` and `second` degrees of freedom, f >= 0: the regularised
/// incomplete beta function I_t(second / 2, first / 2) at t = second / (second + first f), by its continued fraction.
/// Its relative accuracy holds down to the smallest numbers of a double. Throws Error unless both are positive.
double f_tail(double f, double first, double second);

/// P(X > x) for a chi-squared variable with one degree of freedom, x >= 0.
double chi_squared_tail(double x);

}  // namespace diffeo
