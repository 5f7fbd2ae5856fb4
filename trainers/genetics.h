#pragma once

#include <torch/types.h>

namespace diffeo {

using torch::Tensor;

/// Which markers are worth testing.
struct MarkerFilter {
  double least_frequency = 0.01;  ///< of the rarer allele
  double most_missing = 0.05;     ///< share of individuals without a call
};

/// What is known of markers before any phenotype, (M) each, float64.
struct MarkerSummary {
  Tensor frequency;  ///< of the allele that dosages count, half the mean dosage
  Tensor missing;    ///< share of missing calls
  Tensor used;       ///< bool: passes the filter and is not constant
};

/// `dosages` is (n, M), 0 to 2, NaN for missing calls.
MarkerSummary summary_of_markers(const Tensor& dosages, const MarkerFilter& filter = {});

/// Missing calls replaced by the mean of the marker: (n, M).
Tensor without_missing(const Tensor& dosages);

/// The centred relatedness matrix of dosages without missing values (n, M): the mean over markers of
/// (x - mean)(x - mean)^T, (n, n) in float64. Zhou and Stephens 2012, https://doi.org/10.1038/ng.2310.
Tensor centred_relatedness(const Tensor& dosages);

/// The rank-based inverse normal transform: quantiles of the standard normal at (rank - 3/8) / (n + 1/4), ties sharing
/// their mean rank. NaN stay NaN. (n) in float64. Blom 1958.
Tensor rank_normal(const Tensor& values);

/// The largest p-value that is rejected at false discovery rate `rate`, or 0 if none is. Benjamini and Hochberg 1995.
double false_discovery_threshold(const Tensor& p, double rate);

/// Genomic inflation: the median of the chi-squared statistics that belong to p-values, over its expectation 0.4549.
double inflation(const Tensor& p);

}  // namespace diffeo
