#pragma once

#include "diffeo/trainers/fit.h"
#include "diffeo/trainers/interventional/model.h"

namespace diffeo {

/// How the parts of an interventional model are trained.
struct InterventionalFit {
  NuisanceLikelihood::Options regularisation;
  FitOptions nuisance{.batch_size = 64, .learning_rate = 3e-3};
  FitOptions target{.batch_size = 512, .learning_rate = 5e-3, .average = 0.995};
  double holdout = 0.1;  ///< share of a nuisance's rows that choose its best state, 0 for none
};

/// A place in the training of an interventional model: stage k < folds is nuisance k, stage `folds` the targets.
struct InterventionalPosition {
  int64_t stage = 0;
  TrainingState state;  ///< of the run of that stage; scalars empty where it has not begun
};

struct InterventionalHooks {
  std::function<void(int64_t stage, const std::string& what)> begin;  ///< a stage begins
  std::function<void(const Progress&)> progress;
  std::function<void(const InterventionalPosition&, const Json& history)> checkpoint;
  std::function<void(const std::string&)> notice;
  std::function<bool()> stop;
};

struct InterventionalReport {
  std::string ended;                    ///< "finished", "interrupted" or "not finite"
  std::string message;                  ///< a sentence for the user if it did not end well
  std::vector<double> nuisance_losses;  ///< of each nuisance on the rows held out (NaN without), nats
  InterventionalPosition position;      ///< where to go on if it was interrupted
  Json history = Json::array();         ///< of the targets
};

/// The share of a study that nuisance k learns from, and the one that chooses its best state.
struct NuisanceRows {
  Tensor learn, choose;  ///< (M) int64, row numbers
};
NuisanceRows rows_for_nuisance(const InterventionalModel& model, int64_t k, double holdout, uint64_t seed);

/// Trains one nuisance by `fit`.
FitReport fit_nuisance(const NuisancePtr& nuisance, const Study& learn, const Study& choose,
                       const NuisanceLikelihood::Options& regularisation, const FitOptions& options,
                       const FitHooks& hooks = {}, const TrainingState* resume = nullptr);

/// How target flows are fitted.
struct TargetOptions {
  Correction correction = Correction::aiptw;
  double clip = 0.05;
  /// Of one outcome: fit to the corrected distribution made increasing, all rows at once, rather than in batches.
  bool increasing = true;
  double smoothing = 1;  ///< of that distribution; see corrected_distribution
  double floor = 0.02;   ///< in batches; see InterventionalLikelihood
};

/// Trains target flows by `fit`, with the nuisances' predictions for the same rows.
FitReport fit_targets(const std::vector<FlowPtr>& targets, const Predictions& predictions, const Study& study,
                      const TargetOptions& how, const FitOptions& options, const FitHooks& hooks = {},
                      const TrainingState* resume = nullptr);

/// Trains all of a model that `for_study` made of this study: the nuisances, then, with their predictions for rows that
/// they did not see, the targets. Throws Error as `fit` does.
InterventionalReport fit_interventional(InterventionalModel& model, const Study& study,
                                        const InterventionalFit& options, const InterventionalHooks& hooks = {},
                                        const InterventionalPosition* resume = nullptr);

}  // namespace diffeo
