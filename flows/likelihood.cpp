#include "diffeo/flows/likelihood.h"

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

void each_log_prob(Flow& flow, BatchStream& rows,
                   const std::function<void(const Tensor& log_prob, const Batch& batch)>& sink, int64_t paths) {
  torch::NoGradGuard no_grad;
  const bool was_training = flow.is_training();
  flow.eval();
  const auto device = flow.tensor_options().device();
  for (Batch batch; rows.next(batch);) {
    const auto context = batch.context.defined() ? batch.context.to(device) : batch.context;
    const auto x = batch.x.to(device);
    sink((paths > 0 ? flow.log_prob_bound(x, context, paths) : flow.log_prob(x, context)).cpu(), batch);
  }
  flow.train(was_training);
}

}  // namespace diffeo
