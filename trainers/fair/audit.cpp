#include "diffeo/trainers/fair/audit.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/ones_like.h>

#include <algorithm>
#include <cmath>

#include "diffeo/layers/base/random.h"

namespace diffeo {
namespace {

FairRows encoded(FairFlow& model, const FairRows& rows) {
  const at::NoGradGuard no_grad;
  if (rows.size() == 0) return rows;
  return {model.encode_rows(rows.x, rows.group), rows.group, rows.label};
}

/// Representations of draws, `count` of each group, with their groups as labels too.
FairRows drawn(FairFlow& model, const std::vector<DistributionPtr>& densities, int64_t count) {
  const at::NoGradGuard no_grad;
  std::vector<Tensor> x, group;
  for (int64_t a = 0; a < model.groups(); ++a) {
    x.push_back(model.encode(densities[a]->sample(count), a).value);
    group.push_back(at::full({count}, a, torch::TensorOptions(x.back().device()).dtype(torch::kLong)));
  }
  return {at::cat(x), at::cat(group), at::cat(group)};
}

}  // namespace

std::vector<AdversaryScore> attack(const FairRows& train, const FairRows& valid, const FairRows& test, int64_t groups,
                                   int64_t steps, uint64_t seed) {
  const std::vector<std::pair<std::string, ClassifierOptions>> networks{
      {"1 x 30", {.width = 30, .depth = 1, .steps = steps, .learning_rate = 1e-2, .seed = seed}},
      {"2 x 100", {.width = 100, .depth = 2, .steps = steps, .learning_rate = 3e-3, .seed = seed + 1}}};
  std::vector<AdversaryScore> scores;
  for (const auto& [name, how] : networks) {
    const auto adversary = fit_classifier({train.x, train.group}, {valid.x, valid.group}, groups, true, how);
    const auto rates = hit_rates(adversary->predict(test.x), test.group, groups);
    const auto counts = at::bincount(test.group, {}, groups).to(torch::kDouble);
    const double variance = (rates * (1 - rates) / counts).sum().item<double>();
    scores.push_back({name, rates.mean().item<double>(), std::sqrt(variance) / static_cast<double>(groups)});
  }
  return scores;
}

void judge_task(const FairSplits& rows, int64_t groups, uint64_t seed, Audit& audit) {
  const auto classifier = fit_classifier({rows.train.x, rows.train.label}, {rows.valid.x, rows.valid.label}, 2, false,
                                         {.width = 100, .depth = 1, .steps = 2000, .seed = seed});
  const auto predicted = classifier->predict(rows.test.x);
  audit.task_accuracy = accuracy(predicted, rows.test.label);
  audit.task_deviation =
      std::sqrt(audit.task_accuracy * (1 - audit.task_accuracy) / static_cast<double>(rows.test.size()));
  for (auto& stratum : audit.strata) {
    const auto among =
        stratum.label < 0 ? at::ones_like(rows.test.label, torch::kBool) : rows.test.label == stratum.label;
    std::vector<double> shares;
    for (int64_t a = 0; a < groups; ++a) {
      const auto own = predicted.masked_select(among.logical_and(rows.test.group == a));
      if (own.size(0) > 0) shares.push_back(own.to(torch::kDouble).mean().item<double>());
    }
    const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
    stratum.gap = shares.empty() ? std::nan("") : *most - *least;
  }
}

Audit examine(FairFlow& model, const GroupDensities& densities, const std::vector<int64_t>& labels,
              const FairSplits& points, const AuditOptions& options, uint64_t seed) {
  at_least(1, "samples", options.samples);
  at_least(1, "adversary_steps", options.adversary_steps);
  check(labels.size() == densities.size(), "audit: there are ", densities.size(), " strata of densities, but ",
        labels.size(), " labels");
  const SeedGuard guard(seed, model.tensor_options().device());
  model.eval();
  const auto groups = model.groups();
  const FairSplits rows{encoded(model, points.train), encoded(model, points.valid), encoded(model, points.test)};
  Audit audit;
  for (size_t stratum = 0; stratum < labels.size(); ++stratum) {
    StratumAudit one;
    one.label = labels[stratum];
    const auto log_densities = drawn_log_densities(model, densities[stratum], options.samples);
    one.certificate = certify(log_densities, options.confidence);
    one.weighted_delta = groups == 2 ? weighted_delta(log_densities) : std::nan("");
    one.on_draws = attack(drawn(model, densities[stratum], options.samples), drawn(model, densities[stratum], 2000),
                          drawn(model, densities[stratum], options.samples), groups, options.adversary_steps, seed);
    one.on_rows = attack(rows.train.of(-1, one.label), rows.valid.of(-1, one.label), rows.test.of(-1, one.label),
                         groups, options.adversary_steps, seed);
    audit.strata.push_back(std::move(one));
  }
  judge_task(rows, groups, seed, audit);
  const at::NoGradGuard no_grad;
  audit.head_accuracy = accuracy(model.classify(rows.test.x).argmax(-1), rows.test.label);
  return audit;
}

Audit examine_cells(const Cells& cells, const CellMatching& matching, double gamma, const FairSplits& rows,
                    const AuditOptions& options, uint64_t seed) {
  at_least(1, "samples", options.samples);
  const SeedGuard guard(seed);
  const auto latent = matching.latent(gamma);
  const auto shown = [&](const FairRows& some) -> FairRows {
    if (some.size() == 0) return some;
    return {cells.one_hot(matching.encode(some.x, some.group, gamma)), some.group, some.label};
  };
  const auto drawn_cells = [&](int64_t count) -> FairRows {
    const auto x = at::cat({at::multinomial(latent[0], count, true), at::multinomial(latent[1], count, true)});
    const auto group = at::arange(2 * count, torch::kLong).ge(count).to(torch::kLong);
    return {cells.one_hot(x), group, group};
  };
  const FairSplits encoded_rows{shown(rows.train), shown(rows.valid), shown(rows.test)};
  Audit audit;
  StratumAudit one;
  one.certificate = certify_cells(latent);
  one.weighted_delta = 0.5 * (latent[0] - latent[1]).abs().sum().item<double>();
  one.on_draws = attack(drawn_cells(options.samples), drawn_cells(2000), drawn_cells(options.samples), 2,
                        options.adversary_steps, seed);
  one.on_rows = attack(encoded_rows.train, encoded_rows.valid, encoded_rows.test, 2, options.adversary_steps, seed);
  audit.strata.push_back(std::move(one));
  judge_task(encoded_rows, 2, seed, audit);
  audit.head_accuracy = std::nan("");
  return audit;
}

}  // namespace diffeo
