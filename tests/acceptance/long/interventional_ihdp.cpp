// Ten replications of IHDP, whose true potential outcomes are known: the corrected densities have to be nearer to them
// than the plug-in's and than those of a Gaussian outcome model, and the average effect has to be found with an honest
// standard error. The argument is the first of the ten, 0 to 40; without it 0.
#include <torch/types.h>

#include <cmath>
#include <numbers>

#include "accept.h"
#include "diffeo/data/table.h"
#include "diffeo/trainers/interventional/effects.h"
#include "diffeo/trainers/interventional/train.h"

namespace {

using namespace diffeo;

constexpr int64_t replications = 10;

Tensor rows_of(const std::string& file, const std::string& object, const std::vector<std::string>& splits,
               const std::vector<std::string>& columns = {}) {
  std::vector<Tensor> parts;
  for (const auto& split : splits) parts.push_back(read_table({file, "/" + split + object, columns}).values);
  return torch::cat(parts);
}

/// A replication: what is observed, and what no study ever sees.
struct Replication {
  Study study;
  Tensor potential;  ///< (N, 2): outcomes under both treatments
  double effect;     ///< the mean difference of the true conditional means
};

Replication read(const std::string& file, int64_t index, const std::vector<std::string>& splits) {
  const std::vector<std::string> column{std::to_string(index)};
  const auto at = [&](const char* object) { return rows_of(file, object, splits, column); };
  Replication one;
  const auto treatment = rows_of(file, "/treatment", splits).flatten().to(torch::kInt64);
  const auto seen = at("/outcome"), other = at("/counterfactual");
  one.study = {rows_of(file, "/x", splits), treatment, seen};
  const auto treated = treatment.eq(1).unsqueeze(1);
  one.potential = torch::cat({torch::where(treated, other, seen), torch::where(treated, seen, other)}, 1);
  one.effect = (at("/mu1") - at("/mu0")).mean().item<double>();
  return one;
}

/// The mean log density of both potential outcomes under target flows, in nats.
double score(const std::vector<FlowPtr>& targets, const Tensor& potential) {
  torch::NoGradGuard no_grad;
  Tensor total;
  for (int64_t a = 0; a < 2; ++a) {
    const auto one = targets[a]->log_prob(potential.slice(1, a, a + 1)).to(torch::kFloat64).mean();
    total = total.defined() ? total + one : one;
  }
  return total.item<double>() / 2;
}

/// The same under the mean of the outcome densities over the study's rows, each by the nuisance that did not see it.
double averaged_score(const InterventionalModel& model, const Study& study, const Tensor& potential) {
  torch::NoGradGuard no_grad;
  double total = 0;
  for (int64_t a = 0; a < 2; ++a) {
    std::vector<Tensor> log_densities;
    for (int64_t k = 0; k < model.options().folds; ++k) {
      auto& nuisance = *model.nuisances()[k];
      const auto rows = study.covariates.index_select(0, model.fold().eq(k).nonzero().flatten());
      const auto context = nuisance.context(nuisance.represent(rows), torch::full({rows.size(0)}, a, torch::kInt64));
      for (int64_t i = 0; i < rows.size(0); ++i)
        log_densities.push_back(nuisance.outcome()->log_prob(potential.slice(1, a, a + 1), context.slice(0, i, i + 1)));
    }
    const auto stacked = torch::stack(log_densities).to(torch::kFloat64);
    total += (stacked.logsumexp(0) - std::log(static_cast<double>(stacked.size(0)))).mean().item<double>();
  }
  return total / 2;
}

InterventionalModelPtr model_of(const Study& study, int64_t bins, uint64_t seed) {
  torch::manual_seed(seed);
  InterventionalOptions options;
  options.nuisance.bins = bins;
  return InterventionalModel::for_study(study, {0, 1}, options, seed);
}

void fit_nuisances(InterventionalModel& model, const Study& study, const InterventionalFit& options) {
  for (int64_t k = 0; k < model.options().folds; ++k) {
    const auto rows = rows_for_nuisance(model, k, options.holdout, options.nuisance.seed);
    fit_nuisance(model.nuisances()[k], study.select(rows.learn), study.select(rows.choose), options.regularisation,
                 options.nuisance);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto file = diffeo::testing::data_file("ihdp");
  const int64_t first = argc > 1 ? std::stoll(argv[1]) : 0;
  double corrected = 0, plug_in = 0, gaussian = 0;
  double corrected_new = 0, plug_in_new = 0, gaussian_new = 0;
  int found = 0, found_by_density = 0;
  for (int64_t i = first; i < first + replications; ++i) {
    const auto seed = static_cast<uint64_t>(i);
    const auto one = read(file, i, {"train", "valid"}), fresh = read(file, i, {"test"});
    InterventionalFit options;
    // As the held-out likelihood of the first replication's nuisances has it.
    options.regularisation.covariate_noise = 0.5;
    options.nuisance.steps = 1000;
    options.nuisance.learning_rate = 1e-3;
    options.target.steps = 2000;
    options.nuisance.seed = options.target.seed = seed;

    const auto model = model_of(one.study, 8, seed);
    fit_nuisances(*model, one.study, options);
    const auto predictions = model->predict(one.study);
    const auto fit_with = [&](const std::vector<FlowPtr>& targets, Correction correction) {
      fit_targets(targets, predictions, one.study, {.correction = correction}, options.target);
    };
    fit_with(model->targets(), Correction::aiptw);
    const auto uncorrected = model_of(one.study, 8, seed);
    fit_with(uncorrected->targets(), Correction::plug_in);
    const auto normal = model_of(one.study, 0, seed);
    fit_nuisances(*normal, one.study, options);

    const double a = score(model->targets(), one.potential), p = score(uncorrected->targets(), one.potential),
                 g = averaged_score(*normal, one.study, one.potential);
    const double a_new = score(model->targets(), fresh.potential),
                 p_new = score(uncorrected->targets(), fresh.potential),
                 g_new = averaged_score(*normal, one.study, fresh.potential);
    corrected += a / replications, plug_in += p / replications, gaussian += g / replications;
    corrected_new += a_new / replications, plug_in_new += p_new / replications, gaussian_new += g_new / replications;
    const auto effect = Effects(*model, one.study).average(1, 0);
    found += std::fabs(effect.one_step - one.effect) <= 2 * effect.standard_error;
    found_by_density += std::fabs(effect.density - one.effect) <= 2 * effect.standard_error;
    std::printf(
        "replication %lld: in sample corrected %.4f plug-in %.4f gaussian %.4f; test rows %.4f %.4f %.4f; effect %.3f "
        "(densities %.3f) +- %.3f, truth %.3f\n",
        static_cast<long long>(i), a, p, g, a_new, p_new, g_new, effect.one_step, effect.density, effect.standard_error,
        one.effect);
    std::fflush(stdout);
  }
  std::printf("means: in sample corrected %.4f, plug-in %.4f, gaussian %.4f; test rows %.4f, %.4f, %.4f\n", corrected,
              plug_in, gaussian, corrected_new, plug_in_new, gaussian_new);
  diffeo::testing::Acceptance accept;
  accept.at_least("ihdp_log_density_over_plug_in", corrected - plug_in, 0);
  accept.at_least("ihdp_log_density_over_gaussian", corrected - gaussian, 0);
  accept.at_least("ihdp_test_log_density_over_plug_in", corrected_new - plug_in_new, 0);
  accept.at_least("ihdp_test_log_density_over_gaussian", corrected_new - gaussian_new, 0);
  accept.at_least("ihdp_effect_within_two_errors", found, 8);
  accept.at_least("ihdp_effect_of_densities_within_two_errors", found_by_density, 8);
  return accept.exit_code();
}
