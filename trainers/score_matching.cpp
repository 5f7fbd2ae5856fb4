#include "diffeo/trainers/score_matching.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn_like.h>
#include <torch/csrc/autograd/autograd.h>

#include "diffeo/layers/base/ranges.h"

namespace diffeo {
namespace {

/// The sum over the event, (B), of (B, *event).
Tensor sum_of_event(const Tensor& values) { return values.flatten(1).sum(1); }

/// Each row scaled to `length`.
Tensor of_length(const Tensor& rows, double length) {
  const auto flat = rows.flatten(1);
  return (flat * (length / flat.norm(2, 1, true))).view(rows.sizes());
}

Tensor repeated(const Tensor& context, int64_t times) {
  return context.defined() ? at::cat(std::vector<Tensor>(times, context)) : context;
}

}  // namespace

EnergyObjective::EnergyObjective(FlowPtr flow, const EnergyOptions& options)
    : options_(options), flow_(register_module("flow", std::move(flow))) {
  finite("energy_weight", options.energy_weight);
  energy_ = std::make_shared<Energy>(flow_, options.match_after_preprocessing ? fixed_layers(*flow_) : 0);
}

Tensor EnergyObjective::loss(const Batch& batch) {
  const bool learns = at::GradMode::is_enabled();
  Tensor points;
  {
    torch::NoGradGuard no_grad;
    points = energy_->enter(batch.x, batch.context);
  }
  const torch::AutoGradMode with_gradients(true);
  auto losses = row_losses(points.detach(), batch.context, learns);
  if (options_.energy_weight != 0)
    losses = losses + options_.energy_weight * energy_->energy(points.detach(), batch.context);
  if (options_.per_dimension) losses = losses / dimensions();
  if (!learns) losses = losses.detach();
  return weighted_mean(losses, batch.weight);
}

ScoreMatching::ScoreMatching(FlowPtr flow, const Options& options) : EnergyObjective(std::move(flow), options) {}

Tensor ScoreMatching::row_losses(const Tensor& given, const Tensor& context, bool learns) {
  const auto points = given.requires_grad_();
  const auto score = energy().score(points, context, true);
  auto trace = points.new_zeros({points.size(0)});
  const auto features = score.flatten(1);
  for (int64_t i = 0; i < features.size(1); ++i)
    if (features.requires_grad()) {
      const auto row = torch::autograd::grad({features.select(1, i).sum()}, {points}, {}, true, learns, true)[0];
      if (row.defined()) trace = trace + row.flatten(1).select(1, i);
    }
  return 0.5 * sum_of_event(score.square()) + trace;
}

SlicedScoreMatching::SlicedScoreMatching(FlowPtr flow, const Options& options)
    : EnergyObjective(std::move(flow), options), slices_(at_least(1, "slices", options.slices)) {}

Tensor SlicedScoreMatching::row_losses(const Tensor& points, const Tensor& context, bool learns) {
  auto sizes = points.sizes().vec();
  sizes.insert(sizes.begin(), slices_);
  const auto signs = at::randint(2, sizes, points.options()) * 2 - 1;
  const auto [score, curvatures] = energy().slices(points, signs, context, learns);
  return 0.5 * sum_of_event(score.square()) + curvatures.mean(0);
}

DenoisingScoreMatching::DenoisingScoreMatching(FlowPtr flow, const Options& options)
    : EnergyObjective(std::move(flow), options), sigma_(above_zero("sigma", options.sigma)) {}

Tensor DenoisingScoreMatching::row_losses(const Tensor& points, const Tensor& context, bool learns) {
  const auto noise = at::randn_like(points);
  const auto score = energy().score(points + sigma_ * noise, context, learns);
  return 0.5 * sum_of_event((score + noise / sigma_).square());
}

FiniteDifferenceScoreMatching::FiniteDifferenceScoreMatching(FlowPtr flow, const Options& options)
    : EnergyObjective(std::move(flow), options), xi_(above_zero("xi", options.xi)) {}

Tensor FiniteDifferenceScoreMatching::row_losses(const Tensor& points, const Tensor& context, bool learns) {
  const at::AutoGradMode with_graph(learns);
  const auto step = of_length(at::randn_like(points), xi_);
  const auto parts = energy().energies_around(points, step, context);
  const auto ahead = parts[0], behind = parts[1], here = parts[2];
  const auto scale = dimensions() / (xi_ * xi_);
  return scale * ((ahead - behind).square() / 8 + (here - ahead) + (here - behind));
}

SelfMaximumLikelihood::SelfMaximumLikelihood(FlowPtr flow, const Options& options)
    : EnergyObjective(std::move(flow), options) {}

Tensor SelfMaximumLikelihood::row_losses(const Tensor& points, const Tensor& context, bool learns) {
  const at::AutoGradMode with_graph(learns);
  if (!is_training()) return energy().energy(points, context) + energy().log_normaliser();
  const auto drawn = energy().draw(points.size(0), context);
  const auto energies = energy().energy(at::cat({points, drawn}), repeated(context, 2)).view({2, -1});
  return energies[0] - energies[1];
}

DIFFEO_OBJECTIVE(score_matching, ScoreMatching, "Score matching with the exact trace (Hyvarinen 2005).");
DIFFEO_OBJECTIVE(sliced_score_matching, SlicedScoreMatching,
                 "Score matching with the trace along random vectors (Song et al. 2019).");
DIFFEO_OBJECTIVE(denoising_score_matching, DenoisingScoreMatching, "Score matching of noisy points (Vincent 2011).");
DIFFEO_OBJECTIVE(finite_difference_score_matching, FiniteDifferenceScoreMatching,
                 "Score matching by differences of energies (Pang et al. 2020).");
DIFFEO_OBJECTIVE(self_maximum_likelihood, SelfMaximumLikelihood,
                 "Maximum likelihood by the energies of data and of samples (Chao et al. 2023).");

}  // namespace diffeo
