#pragma once

namespace diffeo {

/// P(F > f) for an F-distributed variable with `first` and `second` degrees of freedom, f >= 0: the regularised
/// incomplete beta function I_t(second / 2, first / 2) at t = second / (second + first f), by its continued fraction.
/// Its relative accuracy holds down to the smallest numbers of a double. Throws Error unless both are positive.
double f_tail(double f, double first, double second);

/// I_x(a, b), the regularised incomplete beta function: P(X < x) for a beta variable of a, b > 0, x in [0, 1]. Throws
/// Error for arguments outside.
double incomplete_beta(double a, double b, double x);
/// The x below which a beta variable of a, b > 0 lies with probability `share`, in [0, 1].
double beta_quantile(double share, double a, double b);

/// P(X > x) for a chi-squared variable with one degree of freedom, x >= 0.
double chi_squared_tail(double x);

}  // namespace diffeo
