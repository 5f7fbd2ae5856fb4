#pragma once

#include "diffeo/trainers/fair/fair_flow.h"

namespace diffeo {

/// The trade-off between representations that hide the group and ones that tell the label.
///
///   loss = g KL + (1 - g) CE
///
/// KL is the symmetrised divergence, in nats, of the groups' representations, on draws of the groups' densities;
/// for each group against the others together, averaged over the groups, which for two groups is
/// 1/2 [KL(Z0 || Z1) + KL(Z1 || Z0)]; summed over the labels of the criterion. CE is the mean over the groups of the
/// classifier's cross-entropy on their rows. g grows from 0 to gamma between two steps; in evaluations it is gamma.
///
/// A batch has the group in `context` (B, 1) and the label, 0 or 1, in `label` (B).
/// Balunovic, Ruoss and Vechev, "Fair normalizing flows", 2022, https://arxiv.org/abs/2106.05937, eq. 4 and 5.
class FairObjective : public Objective {
 public:
  struct Options {
    double gamma = 0.5;
    int64_t ramp_start = 0;
    int64_t ramp_end = 0;
    int64_t draws = 256;
    std::string scalarization = "weighted_sum";
    std::vector<double> divergence_range{0, 1};
    std::vector<double> cross_entropy_range{0, 1};
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{
          optional("gamma", &O::gamma, "weight of the divergence, in [0, 1]"),
          optional("ramp_start", &O::ramp_start, "steps before the weight grows"),
          optional("ramp_end", &O::ramp_end, "steps until it is gamma"),
          optional("draws", &O::draws, "points drawn from each density in a step"),
          optional("scalarization", &O::scalarization,
                   "weighted_sum, or chebyshev: the larger of the two terms, each on the scale of its range"),
          optional("divergence_range", &O::divergence_range, "divergence at gamma 1 and 0, for chebyshev"),
          optional("cross_entropy_range", &O::cross_entropy_range, "cross-entropy at gamma 0 and 1, for chebyshev")};
    }
  };

  /// `group_shares` (K): of the training rows. Densities are not trained. Throws SpecError for options out of range,
  /// Error for densities that do not fit the model.
  FairObjective(FairFlowPtr model, GroupDensities densities, const Tensor& group_shares, const Options& options);
  Tensor loss(const Batch& batch) override;

  /// The divergence term alone: a scalar in nats, from fresh draws.
  Tensor divergence();
  /// The cross-entropy term alone: a scalar in nats. Throws Error for groups and labels out of range.
  Tensor cross_entropy(const Batch& batch);

 private:
  double weight_now();
  Tensor divergence_of(const std::vector<DistributionPtr>& densities);

  FairFlowPtr model_;
  GroupDensities densities_;  ///< no children: they are not trained, and no state of a run holds them
  Options options_;
  Tensor group_weight_;  ///< (K): 1 / (K share)
  Tensor steps_;         ///< (), int64: training losses so far
};

/// The KL term from log densities `[a]` (n, K) at draws of each group a: a scalar in nats.
Tensor symmetrized_divergence(const std::vector<Tensor>& log_densities);

}  // namespace diffeo
