#pragma once

#include "diffeo/trainers/interventional/nuisance.h"

namespace diffeo {

/// How integrals over a row's outcome density are taken.
struct QuadratureOptions {
  int64_t grid = 200;
  int64_t draws = 32;
  double clip = 0.05;
  static constexpr auto fields() {
    using O = QuadratureOptions;
    return std::tuple{
        optional("grid", &O::grid, "points of the grid for one outcome"),
        optional("draws", &O::draws, "draws for each row and treatment where the outcome has several columns"),
        optional("clip", &O::clip, "rows whose propensity is below this get no weight in the correction")};
  }
};

/// What the nuisances say of the rows of a study: all that target flows and effects are made from, without gradients.
///
/// The outcome density p(y | x_i, a) stands as points with probabilities. Of one outcome all rows and treatments share
/// a grid of K points, and `probability` (N, T, K) sums to 1 over K; mass and mean are those of the density. Of several
/// outcomes each row and treatment has K draws of equal probability, `points` (N, T, K, D), and `probability` is
/// undefined.
struct Predictions {
  Tensor propensity;   ///< (N, T), sums to 1 over T
  Tensor points;       ///< (K, 1), or (N, T, K, D)
  Tensor probability;  ///< (N, T, K), or undefined

  bool shared_grid() const { return probability.defined(); }
  /// E[y_d | x_i, a], (N, T).
  Tensor mean(int64_t column = 0) const;
  /// P(y_d <= y | x_i, a), (N, T).
  Tensor cumulative(double y, int64_t column = 0) const;
};

/// The grid of K points for one outcome (N, 1): from the least value to the greatest, a quarter of the range more on
/// each side.
Tensor outcome_grid(const Tensor& outcome, int64_t points);

/// The probabilities of points on a grid (K) with equal steps: of values (M, Q) with probabilities (Q), each value's
/// shared between its two neighbours such that mass and mean stay; (M, K). Values outside go to the ends.
Tensor deposit(const Tensor& values, const Tensor& probability, const Tensor& grid);

/// Predictions of one nuisance for covariates (N, C). `grid` (K, 1) is for one outcome, else undefined. Draws come from
/// torch's default generator.
Predictions predict(Nuisance& nuisance, const Tensor& covariates, const Tensor& grid, const QuadratureOptions& options);

/// 1[a_i = a] 1[pi_a(x_i) >= clip] / pi_a(x_i), (N, T).
Tensor inverse_weights(const Tensor& propensity, const Tensor& treatment, double clip);

/// For each treatment, (T): the share of the rows it was given to that inverse_weights leaves out.
Tensor trimmed_share(const Tensor& propensity, const Tensor& treatment, double clip);

}  // namespace diffeo
