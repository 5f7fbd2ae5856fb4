#pragma once

#include <optional>

#include "diffeo/trainers/interventional/bootstrap.h"
#include "diffeo/trainers/interventional/model.h"

namespace diffeo {

/// An effect of one treatment against another, in the units of the outcome or as a probability.
struct Effect {
  std::string name;
  double density = 0;         ///< read off the interventional densities
  double one_step = 0;        ///< the same corrected by the mean of its influence function in the study
  double standard_error = 0;  ///< of `one_step`; 0 where there is no room for error
  bool probability = false;   ///< it lies in [0, 1]
  /// How far bootstrap draws are from the bootstrap's own estimate, in increasing order; empty without a bootstrap.
  std::vector<double> deviations;

  /// An interval around `one_step` for the truth.
  struct Interval {
    double lower, upper;
  };
  /// Between quantiles of the bootstrap draws, else of as many standard errors as a normal law has it. Throws Error
  /// unless `confidence` lies in (0, 1).
  Interval interval(double confidence) const;
};

/// Effects on one column of the outcome, read off interventional densities, with standard errors from the study.
///
/// The influence function of E Y[a] is m_a(x) + w_a (y - m_a(x)) - E Y[a], that of the quantile q_a of level tau
/// -(F_a(q | x) + w_a (1[y <= q] - F_a(q | x)) - tau) / g_a(q), and that of F_a(y) likewise; m and F are the nuisances'
/// predictions, w the inverse weights, g the target flow's density. (Kennedy, Balakrishnan, Wasserman 2023,
/// "Semiparametric counterfactual density estimation", https://arxiv.org/abs/2102.12034; Firpo 2007, "Efficient
/// semiparametric estimation of quantile treatment effects".)
class Effects {
 public:
  /// `study` gives the standard errors. In training data the predictions are of nuisances that did not see the row.
  Effects(InterventionalModel& model, const Study& study, int64_t column = 0);
  /// The same with predictions for the study that are at hand, and target flows; rows of a propensity below `clip` have
  /// no weight.
  Effects(std::vector<FlowPtr> targets, Predictions predictions, const Study& study, double clip, int64_t column = 0);

  /// From here on effects have errors and intervals by a bootstrap of `draws` draws. In each the rows of the study have
  /// other weights, with which the corrected distribution functions
  ///
  ///   F_a(y) = mean_i of F_a(y | x_i) + w_a,i (1[y_i <= y] - F_a(y | x_i))
  ///
  /// are formed, made increasing, and means, quantiles and greatest differences are read off them anew: no density is
  /// divided by, and the place of a greatest difference may move. The nuisances stay as they are: what their own errors
  /// add is of second order where both are consistent, and is not in the intervals.
  void bootstrap(int64_t draws, uint64_t seed);

  /// E Y[a] - E Y[b], a and b being places of treatments.
  Effect average(int64_t a, int64_t b) const;
  /// q_a - q_b at a level in (0, 1).
  Effect quantile(double level, int64_t a, int64_t b) const;
  /// Bounds of P(Y[a] - Y[b] > threshold), which no data decide: only one of the two outcomes of a row is ever seen.
  /// Sharp for what the two densities tell. Lower: sup_y F_b(y - threshold) - F_a(y), upper: 1 - sup_y F_a(y) - F_b(y -
  /// threshold), or 0 and 1 where these are negative (Makarov 1982; Fan and Park 2010).
  Effect benefit_lower(double threshold, int64_t a, int64_t b) const;
  Effect benefit_upper(double threshold, int64_t a, int64_t b) const;

  /// E Y[a] with its standard error.
  Effect mean(int64_t a) const;

 private:
  double cumulative(int64_t a, double y) const;
  double quantile_of(int64_t a, double level) const;
  double density_at(int64_t a, double y) const;
  Tensor mean_scores(int64_t a) const;                  ///< (N)
  Tensor cumulative_scores(int64_t a, double y) const;  ///< (N)
  Tensor places_of_steps(int64_t a) const;              ///< (Q), increasing: where bootstrapped functions are taken
  /// With the errors of draws (1 + draws), the first of which is the estimate; as it is where there are none.
  Effect bootstrapped(Effect effect, const Tensor& draws) const;
  /// sup_y F_from(y - shift_from) - F_of(y - shift_of) in each draw, (1 + draws), at least 0.
  Tensor drawn_gaps(int64_t from, double shift_from, int64_t of, double shift_of) const;
  Effect corrected(std::string name, double density, const Tensor& influence, bool probability = false) const;
  /// sup_y F_from(y - shift_from) - F_of(y - shift_of) and where.
  struct Gap {
    double value, place;
  };
  Gap largest_gap(int64_t from, double shift_from, int64_t of, double shift_of) const;

  Predictions predictions_;
  Tensor outcome_, weights_;   ///< (N) and (N, T), float64
  std::vector<Tensor> drawn_;  ///< for each treatment, sorted values of Y[a], (M) float64
  std::vector<FlowPtr> targets_;
  int64_t column_;
  std::optional<MultiplierBootstrap> bootstrap_;
  std::vector<DistributionFunctions> resampled_;  ///< of each treatment, with a bootstrap
};

/// Values of Y[a], (M, D): of one outcome its quantiles at (i - 1/2) / M, in order, else draws.
Tensor outcome_values(Flow& target, int64_t count);

}  // namespace diffeo
