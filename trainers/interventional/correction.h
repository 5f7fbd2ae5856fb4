#pragma once

#include "diffeo/trainers/interventional/predictions.h"

namespace diffeo {

/// How target flows are told from the nuisances what the interventional densities are.
enum class Correction {
  plug_in,  ///< the mean of the outcome densities: right where those are
  iptw,     ///< observed outcomes, weighted by the inverse propensity: right where that is
  aiptw     ///< the one-step bias-corrected: right where either is
};

/// By its name, plug_in, iptw or aiptw. Throws SpecError for another.
Correction correction_named(const std::string& name);
std::string name_of(Correction correction);

/// Fits a density g_a for each potential outcome Y[a], with frozen nuisances:
///
///   CE_i = -E_{y ~ p(y | x_i, a)} log g_a(y),   w_i = 1[a_i = a] 1[pi_a(x_i) >= clip] / pi_a(x_i)
///   plug_in: mean_i CE_i
///   iptw:    mean_i w_i (-log g_a(y_i))
///   aiptw:   mean_i CE_i + w_i (-log g_a(y_i) - CE_i)
///
/// and the sum over treatments, in nats. The nuisances come in as numbers of the batch, so that no gradient can reach
/// them. Melnychuk, Frauen, Feuerriegel 2023, https://arxiv.org/abs/2209.06203.
///
/// Where weights are large, the corrected loss asks for negative density in places, 1 - w_i being negative there, and
/// no flow minimises it: it runs off to less and less density. `floor` bounds it: log g_a then stands for log((1 -
/// floor) g_a + floor h), with h a product of Cauchy densities in the units of the outcome. One outcome has a better
/// cure, `corrected_distribution`.
class InterventionalLikelihood : public Objective {
 public:
  /// `targets` has a flow for each treatment; `grid` (K, 1) is that of the predictions, undefined for several outcomes.
  InterventionalLikelihood(std::vector<FlowPtr> targets, Correction correction, const Tensor& grid);
  /// With a floor in [0, 1); `centre` and `scale` (D) are those of h.
  InterventionalLikelihood(std::vector<FlowPtr> targets, Correction correction, const Tensor& grid, double floor,
                           const Tensor& centre, const Tensor& scale);

  /// Of a batch: x the outcomes (B, D), label the inverse weights (B, T), context the probabilities (B, T K) or the
  /// draws (B, T K D).
  Tensor loss(const Batch& batch) override;

 private:
  Tensor log_prob(Flow& target, const Tensor& outcome) const;

  std::vector<FlowPtr> targets_;
  Correction correction_;
  Tensor grid_, centre_, scale_;
  double floor_ = 0;
};

/// The nearest increasing numbers to `values` (K), in squared distance: the pool of adjacent violators. Their sum
/// stays.
Tensor increasing(const Tensor& values);

/// The distribution of one outcome under each treatment, (T, K) probabilities of the grid's points: what the loss
/// compares flows with, as one distribution. Where the corrected one has negative probabilities, its distribution
/// function is made to increase (its mean stays) and kept within [0, 1].
///
/// Single outcomes and their weights, not what the nuisances predict, are smoothed by a normal kernel of `smoothing`
/// times Silverman's width, 0.9 times the outcome's standard deviation times M^(-1/5) with M = (sum w)^2 / sum w^2.
Tensor corrected_distribution(const Predictions& predictions, const Tensor& outcome, const Tensor& weights,
                              Correction correction, double smoothing = 1);

/// The rows that InterventionalLikelihood takes: outcomes (N, D) and inverse weights (N, T), both in the dtype of the
/// predictions.
Batch rows_of(const Predictions& predictions, const Tensor& outcome, const Tensor& weights);

}  // namespace diffeo
