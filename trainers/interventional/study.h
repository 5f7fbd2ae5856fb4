#pragma once

#include "diffeo/layers/base/module.h"

namespace diffeo {

/// Rows of an observational study: who (covariates), what was done (treatment), what came of it (outcome).
struct Study {
  Tensor covariates;  ///< (N, C)
  Tensor treatment;   ///< (N) int64, places in the list of treatments, 0 ... T - 1
  Tensor outcome;     ///< (N, D), of the covariates' dtype

  int64_t rows() const { return covariates.size(0); }
  /// The rows that `index` (M) int64 names.
  Study select(const Tensor& index) const;
};

/// Throws Error unless the three have one number of rows, at least one covariate and outcome, and places in [0, T).
void check_study(const Study& study, int64_t treatments);

/// A number that depends on every value of the study and on the order of its rows: rows seen in training are known
/// again by it.
int64_t fingerprint(const Study& study);

/// The fold of each row, (N) int64 in [0, folds): each treatment's rows are shared out evenly, in an order that `seed`
/// decides. Throws Error where a treatment has fewer than two rows for each fold.
Tensor assign_folds(const Tensor& treatment, int64_t treatments, int64_t folds, uint64_t seed);

}  // namespace diffeo
