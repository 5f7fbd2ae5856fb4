#pragma once

#include <functional>

#include "diffeo/trainers/fair/fair_flow.h"

namespace diffeo {

/// Rows of a data set: points (n, D), groups (n) and labels (n), int64.
struct FairRows {
  Tensor x, group, label;
  int64_t size() const { return x.defined() ? x.size(0) : 0; }
  /// Those of one group (-1: all) and one label (-1: all).
  FairRows of(int64_t group, int64_t label) const;
};

/// Rows to learn from, to choose by, and to test on. All but the first may have none.
struct FairSplits {
  FairRows train, valid, test;
  const FairRows& held_out() const { return test.size() > 0 ? test : valid.size() > 0 ? valid : train; }
};

/// What the densities of the groups are.
struct DensityOptions {
  std::string density = "full_mixture";
  int64_t components = 0;
  int64_t density_layers = 0;
  int64_t density_width = 0;
  int64_t density_steps = 2000;
  double density_learning_rate = 1e-3;
  static constexpr auto fields() {
    using O = DensityOptions;
    return std::tuple{
        optional("density", &O::density,
                 "full_mixture (by expectation maximisation), or a named flow fitted by maximum likelihood and "
                 "frozen: realnvp, maf (autoregressive), nsf, ..."),
        optional("components", &O::components, "of the mixture; 0: of 1, 2, 4, ... 32 the best on validation rows"),
        optional("density_layers", &O::density_layers, "of the flow; 0: its own default"),
        optional("density_width", &O::density_width, "of its networks; 0: its own default"),
        optional("density_steps", &O::density_steps, "steps of its training"),
        optional("density_learning_rate", &O::density_learning_rate, "at its highest")};
  }
};

/// How well a density describes rows that it did not learn from.
struct DensityReport {
  int64_t label = -1, group = 0;  ///< which rows; label -1: all
  int64_t rows = 0;
  double train = 0, valid = 0;  ///< mean log-likelihood, nats
  /// A lower limit, roughly, of the total variation distance to the truth: 2 accuracy - 1 of a classifier that tells
  /// held-out rows from draws; not below 0.
  double distance = 0;
};

/// A density of rows (n, D), frozen, in evaluation mode. `valid` (may be undefined) chooses sizes and the best state.
/// Throws SpecError for an unknown density, Error for too few rows.
DistributionPtr fit_density(const Tensor& train, const Tensor& valid, const DensityOptions& options, uint64_t seed);

/// A lower limit, roughly, of the total variation distance between rows and draws: 2 accuracy - 1 of a classifier that
/// learns on `train` rows against as many draws and is scored on `held_out` ones; not below 0. `draw(n)` gives (n, D).
double distance_to_draws(const Tensor& train, const Tensor& valid, const Tensor& held_out,
                         const std::function<Tensor(int64_t)>& draw, uint64_t seed);

/// What `density` is worth; the classifier learns on `train` rows against draws and is scored on `held_out` ones.
DensityReport assess_density(Distribution& density, const Tensor& train, const Tensor& valid, const Tensor& held_out,
                             uint64_t seed);

}  // namespace diffeo
