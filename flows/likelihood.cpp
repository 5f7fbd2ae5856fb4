#include "diffeo/flows/likelihood.h"
#include "diffeo/layers/base/training_guard.h"

#include <ATen/ops/ones_like.h>

#include <cmath>

namespace diffeo {

void LogLikelihoods::add(const Tensor& log_prob, const Tensor& weight) {
  const auto all = log_prob.detach().to(torch::kCPU, torch::kFloat64);
  rows_ += all.numel();
  const auto possible = all.isneginf().logical_not();
  const auto values = all.index({possible});
  impossible_ += all.numel() - values.numel();
  if (values.numel() == 0) return;
  const auto w =
      weight.defined() ? weight.to(torch::kCPU, torch::kFloat64).index({possible}) : torch::ones_like(values);
  if (weight_ == 0) pilot_ = values.mean().item<double>();
  const auto difference = values - pilot_, squared = w.square();
  weight_ += w.sum().item<double>();
  sum_ += (w * difference).sum().item<double>();
  squared_weight_ += squared.sum().item<double>();
  squared_weight_sum_ += (squared * difference).sum().item<double>();
  squares_ += (squared * difference.square()).sum().item<double>();
}

double LogLikelihoods::mean() const { return impossible_ > 0 ? -INFINITY : pilot_ + sum_ / weight_; }

double LogLikelihoods::standard_error() const {
  const auto n = static_cast<double>(rows_ - impossible_);
  const double shift = sum_ / weight_;
  const double squares = squares_ - 2 * shift * squared_weight_sum_ + shift * shift * squared_weight_;
  return std::sqrt(std::fmax(0.0, squares) * n / (n - 1)) / weight_;
}

double LogLikelihoods::bits_per_dimension(int64_t features) const {
  return -mean() / (std::log(2.0) * static_cast<double>(features));
}

namespace {

/// Calls `body(x, context, batch)` for one batch after another, in evaluation mode and without gradients.
template <class Body>
void each_batch(Flow& flow, BatchStream& rows, Body&& body) {
  torch::NoGradGuard no_grad;
  const TrainingGuard evaluation(flow, false);
  const auto device = flow.tensor_options().device();
  for (Batch batch; rows.next(batch);)
    body(batch.x.to(device), batch.context.defined() ? batch.context.to(device) : batch.context, batch);
}

}  // namespace

void each_log_prob(Flow& flow, BatchStream& rows,
                   const std::function<void(const Tensor& log_prob, const Batch& batch)>& sink, int64_t paths) {
  each_batch(flow, rows, [&](const Tensor& x, const Tensor& context, const Batch& batch) {
    sink((paths > 0 ? flow.log_prob_bound(x, context, paths) : flow.log_prob(x, context)).cpu(), batch);
  });
}

void each_projection(Flow& flow, BatchStream& rows,
                     const std::function<void(const Projection& projection, const Batch& batch)>& sink) {
  each_batch(flow, rows, [&](const Tensor& x, const Tensor& context, const Batch& batch) {
    const auto [value, log_prob, distance] = flow.project(x, context);
    sink({value.cpu(), log_prob.cpu(), distance.cpu()}, batch);
  });
}

void ManifoldFit::add(const Projection& projection, const Batch& batch) {
  log_likelihoods_.add(projection.log_prob, batch.weight);
  const auto distance = projection.distance.to(torch::kFloat64);
  const auto weight = batch.weight.defined() ? batch.weight.to(torch::kCPU, torch::kFloat64) : at::ones_like(distance);
  weight_ += weight.sum().item<double>();
  squares_ += (weight * distance.square()).sum().item<double>();
  distances_ += (weight * distance).sum().item<double>();
}

double ManifoldFit::reconstruction_error() const { return squares_ / weight_; }
double ManifoldFit::distance() const { return distances_ / weight_; }

}  // namespace diffeo
