#pragma once

#include "diffeo/trainers/interventional/model.h"

namespace diffeo {

/// An effect of one treatment against another, in the units of the outcome or as a probability.
struct Effect {
  std::string name;
  double density = 0;         ///< read off the interventional densities
  double one_step = 0;        ///< the same corrected by the mean of its influence function in the study
  double standard_error = 0;  ///< of `one_step`, from the influence function; 0 where there is no room for error
  bool probability = false;   ///< it lies in [0, 1]

  /// Ends of the interval of `width` standard errors to each side.
  double lower(double width) const;
  double upper(double width) const;
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
};

/// Values of Y[a], (M, D): of one outcome its quantiles at (i - 1/2) / M, in order, else draws.
Tensor outcome_values(Flow& target, int64_t count);

}  // namespace diffeo
