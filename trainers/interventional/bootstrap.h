#pragma once

#include <torch/types.h>

#include <vector>

namespace diffeo {

using torch::Tensor;

/// Weighted means over the rows of a study, with other weights in each of `draws` draws: exponential ones, divided by
/// their mean (the Bayesian bootstrap: Rubin 1981; as multipliers of a one-step estimate, Chernozhukov et al. 2018,
/// "Double/debiased machine learning", https://arxiv.org/abs/1608.00060). The first row of what it gives has weights of
/// one: the estimate itself. The same seed gives the same weights, for whatever is averaged.
class MultiplierBootstrap {
 public:
  /// Throws Error for fewer than 2 draws.
  MultiplierBootstrap(int64_t draws, uint64_t seed);

  /// Means (1 + draws, Q) of `scores` (N, Q), float64.
  Tensor means(const Tensor& scores) const;

 private:
  int64_t draws_;
  uint64_t seed_;
};

/// Distribution functions with the values `values` (R, Q) at increasing `points` (Q), linear between them, float64.
class DistributionFunctions {
 public:
  DistributionFunctions() = default;
  /// The values are made increasing and kept within [0, 1].
  DistributionFunctions(Tensor points, const Tensor& values);

  const Tensor& points() const { return points_; }
  /// (R, M) at the places (M). Constant beyond the ends.
  Tensor at(const Tensor& places) const;
  /// (R): where each is `level`; not beyond the ends.
  Tensor quantile(double level) const;

 private:
  Tensor points_, values_;
};

}  // namespace diffeo
