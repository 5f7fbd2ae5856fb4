#pragma once

#include <torch/types.h>

namespace diffeo {

using torch::Tensor;

/// The linear mixed model of a phenotype y of n individuals,
///
///   y = W a + x b + u + e,   u ~ N(0, lambda s^2 K),   e ~ N(0, s^2 I),
///
/// with covariates W (an intercept and more), the dosages x of one marker and a relatedness matrix K. K is centred and
/// decomposed once; then each likelihood costs O(n). Lippert et al. 2011, https://doi.org/10.1038/nmeth.1681; Zhou and
/// Stephens 2012, https://doi.org/10.1038/ng.2310, whose conventions (lambda in [1e-5, 1e5], centred K, the three
/// tests) these are. All in float64.
class MixedModel {
 public:
  /// `relatedness` is (n, n), `covariates` (n, C) without the intercept, which is always there. Throws Error for a
  /// matrix that is not square, not symmetric or not finite, for covariates of another length or linearly dependent,
  /// and if individuals are too few.
  explicit MixedModel(const Tensor& relatedness, const Tensor& covariates = {});

  int64_t individuals() const { return eigenvalues_.size(0); }
  /// Of the centred matrix, (n), ascending, not negative.
  const Tensor& eigenvalues() const { return eigenvalues_; }

  /// The model without a marker.
  struct Null {
    double lambda_reml = 0, lambda_ml = 0;                  ///< ratio of the variances of u and e for K as given
    double log_likelihood_reml = 0, log_likelihood_ml = 0;  ///< nats
    double variance_explained = 0;  ///< the share of u in the variance: lambda k / (1 + lambda k), k = tr K / n (REML)
    double standard_error = 0;      ///< of variance_explained, from the curvature of the restricted likelihood; NaN if
                                    ///< that is highest at an end of lambda's range
  };
  /// `phenotype` is (n). Throws Error for another length, values that are not finite or all equal.
  Null null(const Tensor& phenotype) const;

  /// Markers as the likelihoods want them: (n, M) dosages without missing values become (M, n) in the eigenvectors'
  /// coordinates. Costs O(n^2 M); the result serves any number of phenotypes.
  Tensor rotated(const Tensor& dosages) const;

  /// How the ratio of variances is found when a marker is tested.
  enum class Strength {
    for_each_marker,  ///< exact: by restricted and by full likelihood anew for each marker
    of_the_null       ///< that of the model without a marker for all: close where no marker explains much, and fast
  };

  /// What is known of each marker, (M) each.
  struct Associations {
    Tensor effect, standard_error;         ///< b by REML, in units of y for one copy more
    Tensor lambda_reml, lambda_ml;         ///< at which it was tested
    Tensor wald, likelihood_ratio, score;  ///< p-values for b = 0: F(1, n - C - 2), chi-squared, F
  };
  /// `markers` from `rotated`. A marker that the covariates explain (a constant one) has effect 0 and p-values 1.
  Associations associate(const Tensor& phenotype, const Tensor& markers,
                         Strength strength = Strength::for_each_marker) const;

 private:
  struct Fixed;
  Fixed fixed(const Tensor& phenotype) const;
  Tensor best_lambda(const Fixed& fixed, const Tensor& markers, bool restricted) const;

  Tensor eigenvalues_;   ///< (n)
  Tensor eigenvectors_;  ///< (n, n), one a column
  Tensor covariates_;    ///< (n, C + 1), the intercept first, rotated
};

}  // namespace diffeo
