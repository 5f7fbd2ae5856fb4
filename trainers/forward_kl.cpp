#include "diffeo/trainers/forward_kl.h"

#include <ATen/ops/ones_like.h>

#include <limits>

#include "diffeo/flows/score.h"
#include "diffeo/layers/base/score.h"
#include "diffeo/trainers/variational.h"

namespace diffeo {
namespace {

/// What each row of a derivative by the points counts in a mean, (B, 1, ...) or a number.
Tensor in_mean(const Tensor& by_points, const Tensor& weight) {
  if (!weight.defined()) return by_points / static_cast<double>(by_points.size(0));
  auto shape = std::vector<int64_t>(by_points.dim(), 1);
  shape[0] = weight.size(0);
  const auto part = (weight / weight.sum().clamp_min(std::numeric_limits<float>::min())).view(shape);
  return (by_points * part).masked_fill((part == 0).expand_as(by_points), 0);
}

}  // namespace

ForwardKl::ForwardKl(FlowPtr flow, const Options& options)
    : ForwardKl(flow, target_in("forward_kl", options.target), options) {}

ForwardKl::ForwardKl(FlowPtr flow, LogDensityPtr target, const Options& options)
    : flow_(std::move(flow)), target_(std::move(target)), options_(options) {
  check_choice("estimator", options.estimator, {"path", "maximum_likelihood", "path_two_pass"});
  check_variational("forward_kl", *flow_, *target_, options.estimator != "maximum_likelihood");
  register_module("flow", flow_);
}

Sloped ForwardKl::slope_at(const Tensor& x) {
  auto density = target_->log_prob_and_gradient(x);
  if (!std::exchange(looked_, true)) check_finite("forward_kl", "the first batch of points", x, density);
  return density;
}

Tensor ForwardKl::loss(const Batch& batch) {
  follow(*target_, *flow_);
  if (!at::GradMode::is_enabled())
    return weighted_mean(target_->log_prob(batch.x) - flow_->log_prob(batch.x), batch.weight);
  if (options_.estimator == "path") return by_path(batch);
  if (options_.estimator == "path_two_pass") return by_path_in_two(batch);
  return weighted_mean(slope_at(batch.x).log_prob - flow_->log_prob(batch.x), batch.weight);
}

Tensor ForwardKl::by_path(const Batch& batch) {
  const auto [log_p, force] = slope_at(batch.x);
  const auto [z, log_det, score] = flow_->to_latent_with_score(batch.x, force);
  const auto base = score_of(*flow_->base(), z);
  const auto value = weighted_mean(log_p - base.log_prob - log_det, batch.weight);
  return with_base(with_gradient(value, z, in_mean(score - base.gradient, batch.weight)), z, batch.weight);
}

Tensor ForwardKl::by_path_in_two(const Batch& batch) {
  const auto [log_p, force] = slope_at(batch.x);
  const auto point = fresh_point(batch.x);
  const auto [latent, log_det] = flow_->to_latent(point);
  const auto log_q = flow_->base()->log_prob(latent) + log_det;
  const auto score = pulled_back({log_q}, {at::ones_like(log_q)}, point);
  const auto z = latent.detach();
  const auto x = flow_->to_data(z).value;
  const auto value = weighted_mean(log_p - log_q.detach(), batch.weight);
  return with_base(with_gradient(value, x, in_mean(score - force, batch.weight)), z, batch.weight);
}

/// The latents do not depend on the parameters of the base: what these do to the divergence comes on top.
Tensor ForwardKl::with_base(const Tensor& loss, const Tensor& z, const Tensor& weight) {
  if (flow_->base()->parameters().empty()) return loss;
  const auto mean = weighted_mean(flow_->base()->log_prob(z.detach()), weight);
  return loss - (mean - mean.detach());
}

DIFFEO_OBJECTIVE(forward_kl, ForwardKl,
                 "Forward Kullback-Leibler divergence of a target, on its points, with path gradients "
                 "(Vaitl et al. 2024).");

}  // namespace diffeo
