#pragma once

#include "diffeo/flows/model.h"
#include "diffeo/trainers/interventional/correction.h"

namespace diffeo {

/// The structure of an interventional model: what its spec says.
struct InterventionalOptions {
  std::vector<int64_t> treatments;
  std::vector<double> covariate_shift, covariate_scale, outcome_shift, outcome_scale;
  int64_t rows = 0;
  int64_t folds = 5;
  std::string correction = "aiptw";
  bool increasing = true;
  double smoothing = 1;
  double floor = 0.02;
  int64_t target_bins = 8;
  double target_bound = 0;
  NuisanceOptions nuisance;
  QuadratureOptions quadrature;
  std::vector<double> grid;
  static constexpr auto fields() {
    using O = InterventionalOptions;
    return std::tuple{required("treatments", &O::treatments, "the values of the treatment, in order"),
                      required("covariate_shift", &O::covariate_shift, "a number for each covariate"),
                      required("covariate_scale", &O::covariate_scale, "a number above 0 for each covariate"),
                      required("outcome_shift", &O::outcome_shift, "a number for each outcome"),
                      required("outcome_scale", &O::outcome_scale, "a number above 0 for each outcome"),
                      required("rows", &O::rows, "rows of the study"),
                      optional("folds", &O::folds, "nuisances, each learned from the rows of the other folds"),
                      optional("correction", &O::correction, "plug_in, iptw or aiptw"),
                      optional("increasing", &O::increasing,
                               "of one outcome: densities fitted to the corrected distribution made increasing"),
                      optional("smoothing", &O::smoothing, "of that distribution, in units of Silverman's width"),
                      optional("floor", &O::floor, "part of a broad density in the loss of those fitted in batches"),
                      optional("target_bins", &O::target_bins, "bins of the splines of the interventional densities"),
                      optional("target_bound", &O::target_bound,
                               "their splines act within this many standard deviations; 0: all that was observed"),
                      optional("nuisance", &O::nuisance, "the nuisances"),
                      optional("quadrature", &O::quadrature, "integrals over outcomes"),
                      optional("grid", &O::grid, "the first and the last point of the grid for one outcome")};
  }
};

/// Interventional densities p(Y[a] = y) and the nuisances they were learned with, cross-fitted: nuisance k has not seen
/// the rows of fold k.
class InterventionalModel : public Module {
 public:
  explicit InterventionalModel(const InterventionalOptions& options);
  /// A new model for a study: its units, its grid, folds drawn by `seed`. Throws Error where a treatment has too few
  /// rows.
  static std::shared_ptr<InterventionalModel> for_study(const Study& study, const std::vector<int64_t>& treatments,
                                                        InterventionalOptions options, uint64_t seed);

  const InterventionalOptions& options() const { return options_; }
  const std::vector<NuisancePtr>& nuisances() const { return nuisances_; }
  const std::vector<FlowPtr>& targets() const { return targets_; }  ///< one for each treatment
  const Tensor& fold() const { return fold_; }                      ///< (N) int64
  int64_t covariates() const { return static_cast<int64_t>(options_.covariate_shift.size()); }
  int64_t outcomes() const { return static_cast<int64_t>(options_.outcome_shift.size()); }
  int64_t treatments() const { return static_cast<int64_t>(options_.treatments.size()); }
  /// The grid of one outcome, (K, 1); undefined for several.
  Tensor grid() const;

  /// The place of a value of the treatment. Throws Error naming the known ones.
  int64_t place_of(int64_t treatment) const;

  /// Whether a study is that of training, row by row.
  bool knows(const Study& study) const;
  /// Predictions for the rows of a study: those of training by the nuisance that did not see them, others by the mean
  /// of all nuisances. With a single nuisance that is the same.
  Predictions predict(const Study& study);

  /// `{"type": "interventional", ...}`
  Json spec() const { return write("interventional", options_); }

 private:
  InterventionalOptions options_;
  std::vector<NuisancePtr> nuisances_;
  std::vector<FlowPtr> targets_;
  Tensor fold_, fingerprint_;
};

using InterventionalModelPtr = std::shared_ptr<InterventionalModel>;

/// Reads the model of a file that `diffeo intervene train` wrote, on the CPU, in evaluation mode, in the dtype it was
/// saved in. Throws Error naming file and object.
InterventionalModelPtr interventional_from(const ModelFile& file, const std::string& where);

}  // namespace diffeo
