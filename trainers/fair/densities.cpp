#include "diffeo/trainers/fair/densities.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "diffeo/flows/full_mixture.h"
#include "diffeo/flows/recipes.h"
#include "diffeo/layers/base/random.h"

namespace diffeo {
namespace {

double mean_log_prob(Distribution& density, const Tensor& x) {
  const at::NoGradGuard no_grad;
  double sum = 0;
  for (int64_t begin = 0; begin < x.size(0); begin += 8192)
    sum += density.log_prob(x.narrow(0, begin, std::min<int64_t>(8192, x.size(0) - begin))).sum().item<double>();
  return sum / static_cast<double>(x.size(0));
}

DistributionPtr mixture(const Tensor& train, const Tensor& valid, const DensityOptions& options) {
  if (options.components > 0) return fit_full_mixture(train, {.components = options.components});
  const auto& judge = valid.defined() && valid.size(0) > 0 ? valid : train;
  DistributionPtr best;
  double best_likelihood = -std::numeric_limits<double>::infinity();
  for (int64_t components = 1; components <= 32 && 10 * components <= train.size(0); components *= 2) {
    const auto candidate = fit_full_mixture(train, {.components = components, .restarts = 1});
    const double likelihood = mean_log_prob(*candidate, judge);
    if (best && likelihood <= best_likelihood) break;
    best = candidate, best_likelihood = likelihood;
  }
  check(best != nullptr, "full_mixture: needs at least 10 rows, got ", train.size(0));
  return best;
}

DistributionPtr flow(const Tensor& train, const Tensor& valid, const DensityOptions& options, uint64_t seed) {
  const auto spec = recipe(
      options.density, {.features = train.size(1), .layers = options.density_layers, .width = options.density_width});
  const auto flow = build_flow(spec);
  flow->to(train.device(), train.scalar_type());
  MaximumLikelihood objective(flow);
  const auto learn = in_memory({.x = train});
  const auto choose = valid.defined() && valid.size(0) > 0 ? in_memory({.x = valid}) : nullptr;
  fit(objective, *learn, choose.get(),
      {.batch_size = 256,
       .steps = options.density_steps,
       .learning_rate = options.density_learning_rate,
       .evaluate_every = std::max<int64_t>(1, options.density_steps / 20),
       .checkpoint_seconds = 1e9,
       .seed = seed});
  return flow;
}

}  // namespace

FairRows FairRows::of(int64_t wanted_group, int64_t wanted_label) const {
  auto chosen = at::ones({size()}, group.options().dtype(torch::kBool));
  if (wanted_group >= 0) chosen = chosen.logical_and(group == wanted_group);
  if (wanted_label >= 0) chosen = chosen.logical_and(label == wanted_label);
  const auto index = chosen.nonzero().flatten();
  return {x.index_select(0, index), group.index_select(0, index), label.index_select(0, index)};
}

DistributionPtr fit_density(const Tensor& train, const Tensor& valid, const DensityOptions& options, uint64_t seed) {
  at_least(0, "components", options.components);
  at_least(1, "density_steps", options.density_steps);
  const SeedGuard guard(seed, train.device());
  const auto density = options.density == "full_mixture"
                           ? mixture(train, valid, options)
                           : within("density", [&] { return flow(train, valid, options, seed); });
  density->eval();
  for (auto& parameter : density->parameters()) parameter.requires_grad_(false);
  return density;
}

double distance_to_draws(const Tensor& train, const Tensor& valid, const Tensor& held_out,
                         const std::function<Tensor(int64_t)>& draw, uint64_t seed) {
  const SeedGuard guard(seed, train.device());
  const auto against_draws = [&](const Tensor& rows) -> Labelled {
    const at::NoGradGuard no_grad;
    const auto whole = torch::TensorOptions(rows.device()).dtype(torch::kLong);
    return {at::cat({rows, draw(rows.size(0))}),
            at::cat({at::zeros({rows.size(0)}, whole), at::ones({rows.size(0)}, whole)})};
  };
  const auto judge = fit_classifier(against_draws(train), against_draws(valid), 2, true, {.seed = seed});
  const auto test = against_draws(held_out);
  return std::max(0.0, 2 * balanced_accuracy(judge->predict(test.x), test.label, 2) - 1);
}

DensityReport assess_density(Distribution& density, const Tensor& train, const Tensor& valid, const Tensor& held_out,
                             uint64_t seed) {
  DensityReport report;
  report.rows = train.size(0);
  report.train = mean_log_prob(density, train);
  report.valid = mean_log_prob(density, valid);
  report.distance = distance_to_draws(
      train, valid, held_out, [&](int64_t count) { return density.sample(count); }, seed);
  return report;
}

}  // namespace diffeo
