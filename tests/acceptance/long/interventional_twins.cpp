// Twins of less than two kilograms: whether each died within a year is known of both, the lighter and the heavier. A
// treatment, to be the heavier one, is drawn by the weeks of gestation, so that the outcomes of the two groups do not
// compare. The outcome takes two values only: of what is read off densities the average effect alone has a meaning.
#include <torch/types.h>

#include <cmath>

#include "accept.h"
#include "diffeo/data/table.h"
#include "diffeo/trainers/interventional/effects.h"
#include "diffeo/trainers/interventional/train.h"

namespace {

using namespace diffeo;

constexpr int draws = 5;

Tensor rows_of(const std::string& object, const std::vector<std::string>& columns = {}) {
  std::vector<Tensor> parts;
  for (const char* split : {"/train", "/valid"})
    parts.push_back(read_table({diffeo::testing::data_file("twins"), split + object, columns}).values);
  return torch::cat(parts).to(torch::kFloat32);
}

/// The difference of the outcome's means in the two groups, with its standard error.
std::pair<double, double> unadjusted(const Study& study) {
  double difference = 0, variance = 0;
  for (int64_t a = 0; a < 2; ++a) {
    const auto own = study.outcome.select(1, 0).masked_select(study.treatment.eq(a)).to(torch::kFloat64);
    difference += (a == 1 ? 1 : -1) * own.mean().item<double>();
    variance += own.var().item<double>() / static_cast<double>(own.numel());
  }
  return {difference, std::sqrt(variance)};
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a line at a time, for those who wait
  const auto covariates = rows_of("/x"), potential = rows_of("/potential_outcome");
  const auto weeks = rows_of("/x", {"gestat"}).flatten();
  const double truth = (potential.select(1, 1) - potential.select(1, 0)).to(torch::kFloat64).mean().item<double>();
  int found = 0, found_unadjusted = 0;
  for (int i = 0; i < draws; ++i) {
    const auto seed = static_cast<uint64_t>(i);
    torch::manual_seed(seed);
    const auto heavier = torch::rand_like(weeks).lt(((weeks - weeks.mean()) / weeks.std()).sigmoid());
    const auto outcome = torch::where(heavier, potential.select(1, 1), potential.select(1, 0));
    const Study study{covariates, heavier.to(torch::kInt64), outcome.unsqueeze(1)};
    InterventionalFit options;
    options.regularisation.covariate_noise = 0.1;
    options.regularisation.outcome_noise = 0.1;
    options.nuisance.steps = 800;
    options.nuisance.batch_size = 128;
    options.target.steps = 200;
    options.nuisance.seed = options.target.seed = seed;
    InterventionalOptions structure;
    structure.folds = 3;
    const auto model = InterventionalModel::for_study(study, {0, 1}, structure, seed);
    fit_interventional(*model, study, options);
    const auto effect = Effects(*model, study).average(1, 0);
    const auto [difference, error] = unadjusted(study);
    found += std::fabs(effect.one_step - truth) <= 2 * effect.standard_error;
    found_unadjusted += std::fabs(difference - truth) <= 2 * error;
    std::printf("draw %d (seed %d): effect %.4f +- %.4f, unadjusted %.4f +- %.4f, truth %.4f\n", i, i, effect.one_step,
                effect.standard_error, difference, error, truth);
  }
  diffeo::testing::Acceptance accept;
  accept.at_least("twins_effect_within_two_errors", found, 4);
  accept.at_most("twins_unadjusted_within_two_errors", found_unadjusted, 0);
  return accept.exit_code();
}
