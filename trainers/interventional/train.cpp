#include "diffeo/trainers/interventional/train.h"

#include <torch/types.h>

#include "diffeo/layers/base/random.h"

namespace diffeo {
namespace {

Batch batch_of(const Study& study) {
  return {.x = study.outcome, .context = study.covariates, .label = study.treatment};
}

TargetOptions target_options(const InterventionalOptions& options) {
  return {.correction = correction_named(options.correction),
          .clip = options.quadrature.clip,
          .increasing = options.increasing,
          .smoothing = options.smoothing,
          .floor = options.floor};
}

}  // namespace

NuisanceRows rows_for_nuisance(const InterventionalModel& model, int64_t k, double holdout, uint64_t seed) {
  check(holdout >= 0 && holdout < 1, "holdout: expected a share of at least 0 and below 1, got ", holdout);
  // With a single fold nothing is left for the others: it learns from all rows.
  const auto rows = model.options().folds > 1 ? model.fold().ne(k).nonzero().flatten()
                                              : torch::arange(model.options().rows, model.fold().options());
  const SeedGuard guard(seed + static_cast<uint64_t>(k));
  const auto shuffled = rows.index_select(0, torch::randperm(rows.numel(), torch::kInt64).to(rows.device()));
  const auto held = static_cast<int64_t>(holdout * static_cast<double>(rows.numel()));
  return {shuffled.slice(0, held), shuffled.slice(0, 0, held)};
}

FitReport fit_nuisance(const NuisancePtr& nuisance, const Study& learn, const Study& choose,
                       const NuisanceLikelihood::Options& regularisation, const FitOptions& options,
                       const FitHooks& hooks, const TrainingState* resume) {
  NuisanceLikelihood objective(nuisance, regularisation);
  const auto train = in_memory(batch_of(learn));
  const auto valid = choose.rows() > 0 ? in_memory(batch_of(choose)) : nullptr;
  auto mine = options;
  if (!valid) mine.patience = 0;
  return fit(objective, *train, valid.get(), mine, hooks, resume);
}

FitReport fit_targets(const std::vector<FlowPtr>& targets, const Predictions& predictions, const Study& study,
                      const TargetOptions& how, const FitOptions& options, const FitHooks& hooks,
                      const TrainingState* resume) {
  const auto weights = inverse_weights(predictions.propensity, study.treatment, how.clip);
  if (predictions.shared_grid() && how.increasing) {
    const auto distribution =
        corrected_distribution(predictions, study.outcome, weights, how.correction, how.smoothing);
    InterventionalLikelihood objective(targets, Correction::plug_in, predictions.points);
    const auto one = in_memory({.x = study.outcome.slice(0, 0, 1), .context = distribution.view({1, -1})});
    return fit(objective, *one, nullptr, options, hooks, resume);
  }
  const auto deviation = study.outcome.std(0, /*unbiased=*/false).clamp_min(1e-12);
  InterventionalLikelihood objective(targets, how.correction, predictions.shared_grid() ? predictions.points : Tensor(),
                                     how.floor, study.outcome.mean(0), deviation);
  const auto rows = in_memory(rows_of(predictions, study.outcome, weights));
  return fit(objective, *rows, nullptr, options, hooks, resume);
}

InterventionalReport fit_interventional(InterventionalModel& model, const Study& study,
                                        const InterventionalFit& options, const InterventionalHooks& hooks,
                                        const InterventionalPosition* resume) {
  check(model.knows(study), "fit_interventional: the model was made for another study");
  const auto folds = model.options().folds;
  InterventionalReport report;
  report.nuisance_losses.assign(folds, std::numeric_limits<double>::quiet_NaN());
  const auto run = [&](int64_t stage, const std::string& what, auto&& body) {
    if (resume && stage < resume->stage) return true;
    if (hooks.begin) hooks.begin(stage, what);
    FitHooks inner{.progress = hooks.progress, .checkpoint = {}, .notice = hooks.notice, .stop = hooks.stop};
    inner.checkpoint = [&](const TrainingState& state, const Json& history) {
      if (hooks.checkpoint) hooks.checkpoint({stage, state}, history);
    };
    const bool here = resume && resume->stage == stage && !resume->state.scalars.empty();
    const FitReport fitted = body(inner, here ? &resume->state : nullptr);
    if (stage < folds) report.nuisance_losses[stage] = fitted.best_valid_loss;
    report.message = fitted.message;
    report.history = fitted.history;
    const bool whole = fitted.ended != "interrupted" && fitted.ended != "not finite";
    report.ended = whole ? "finished" : fitted.ended;
    report.position = {stage, fitted.state};
    if (whole && stage < folds && hooks.checkpoint) hooks.checkpoint({stage + 1, {}}, fitted.history);
    return whole;
  };
  for (int64_t k = 0; k < folds; ++k) {
    const auto what = c10::str("nuisance ", k + 1, " of ", folds);
    const auto body = [&](const FitHooks& inner, const TrainingState* state) {
      const auto rows = rows_for_nuisance(model, k, options.holdout, options.nuisance.seed);
      return fit_nuisance(model.nuisances()[k], study.select(rows.learn), study.select(rows.choose),
                          options.regularisation, options.nuisance, inner, state);
    };
    if (!run(k, what, body)) return report;
  }
  const auto body = [&](const FitHooks& inner, const TrainingState* state) {
    const SeedGuard guard(options.target.seed, study.outcome.device());  // of the draws of several outcomes
    return fit_targets(model.targets(), model.predict(study), study, target_options(model.options()), options.target,
                       inner, state);
  };
  run(folds, "interventional densities", body);
  return report;
}

}  // namespace diffeo
