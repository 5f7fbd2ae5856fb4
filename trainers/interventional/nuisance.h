#pragma once

#include "diffeo/trainers/interventional/study.h"
#include "diffeo/trainers/objective.h"

namespace diffeo {

/// What the nuisances of an interventional density look like.
struct NuisanceOptions {
  int64_t representation = 16;
  int64_t width = 32;
  int64_t depth = 1;
  int64_t bins = 8;
  double bound = 5;
  std::string activation = "elu";
  static constexpr auto fields() {
    using O = NuisanceOptions;
    return std::tuple{optional("representation", &O::representation, "size of what is learned of the covariates"),
                      optional("width", &O::width, "units in each hidden layer"),
                      optional("depth", &O::depth, "hidden layers of each network"),
                      optional("bins", &O::bins,
                               "bins of the outcome's spline; 0: Gaussian outcomes, given covariates and treatment"),
                      optional("bound", &O::bound, "the spline acts within this many standard deviations"),
                      optional("activation", &O::activation, "of the networks")};
  }
};

/// The sizes and units of a study's columns.
struct StudyShape {
  int64_t treatments = 2;                                ///< T
  std::vector<double> covariate_shift, covariate_scale;  ///< C each
  std::vector<double> outcome_shift, outcome_scale;      ///< D each

  int64_t covariates() const { return static_cast<int64_t>(covariate_shift.size()); }
  int64_t outcomes() const { return static_cast<int64_t>(outcome_shift.size()); }
};

/// Means and standard deviations (1 for a constant column) of a study.
StudyShape shape_of(const Study& study, int64_t treatments);

/// The conditional density of the outcome and the propensity, with one representation for both:
///
///   r(x) = net of the standardised covariates,  pi_a(x) = softmax of a linear map of r,
///   p(y | x, a): y to standardised y, an affine map and a rational-quadratic spline, both with parameters that
///   networks make of (r, one-hot a), to a standard normal; autoregressive where the outcome has several columns.
///
/// Melnychuk, Frauen, Feuerriegel, "Normalizing Flows for Interventional Density Estimation", 2023,
/// https://arxiv.org/abs/2209.06203. Unlike there, an affine map given covariates and treatment stands in
/// front of the spline: outcomes that are well predicted need no fine bins then.
class Nuisance : public Module {
 public:
  Nuisance(const StudyShape& shape, const NuisanceOptions& options);

  /// r, (B, R), of covariates (B, C) in their own units.
  Tensor represent(const Tensor& covariates);
  /// log pi_a(x), (B, T), from a representation.
  Tensor log_propensity(const Tensor& representation);
  /// What the outcome's flow takes: (B, R + T) of a representation (B, R) and places of treatments (B) int64.
  Tensor context(const Tensor& representation, const Tensor& treatment) const;
  /// The flow of outcomes (*batch, D) in their own units, given `context`.
  const FlowPtr& outcome() const { return outcome_; }
  const Tensor& outcome_scale() const { return outcome_scale_; }  ///< (D)
  int64_t treatments() const { return treatments_; }

 private:
  int64_t treatments_;
  Tensor covariate_shift_, covariate_scale_, outcome_scale_;
  NetPtr representation_, propensity_;
  FlowPtr outcome_;
};

using NuisancePtr = std::shared_ptr<Nuisance>;

/// Minus the mean log-likelihood of outcomes plus the cross-entropy of treatments, in nats:
///
///   L = -mean log p(y + s_y e | r(x) + s_x e', a) - alpha mean log pi_a(x),   e, e' standard normal
///
/// The noise regularises and is added in training only. Of a batch: x the outcomes (B, D), context the covariates
/// (B, C), label the places of the treatments (B) int64.
class NuisanceLikelihood : public Objective {
 public:
  struct Options {
    double covariate_noise = 0.1;
    double outcome_noise = 0.05;
    double propensity_weight = 1;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{
          optional("covariate_noise", &O::covariate_noise,
                   "standard deviation of the noise on what is learned of the covariates"),
          optional("outcome_noise", &O::outcome_noise, "that on outcomes, in units of their own standard deviation"),
          optional("propensity_weight", &O::propensity_weight,
                   "of the cross-entropy of treatments against the likelihood of outcomes")};
    }
  };

  NuisanceLikelihood(NuisancePtr nuisance, const Options& options);
  Tensor loss(const Batch& batch) override;

 private:
  NuisancePtr nuisance_;
  Options options_;
};

}  // namespace diffeo
