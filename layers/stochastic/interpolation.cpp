#include "diffeo/layers/stochastic/interpolation.h"

#include "diffeo/layers/base/error.h"

namespace diffeo {

Tensor sum_of_event(const Tensor& values, const Space& space) {
  const auto dimensions = static_cast<int64_t>(space.event.size());
  return values.flatten(values.dim() - dimensions).sum(-1);
}

Tensor StandardNormalDensity::evaluate(const Tensor& x) { return -0.5 * sum_of_event(x.square(), space()); }

Sloped StandardNormalDensity::evaluate_with_gradient(const Tensor& x) { return {evaluate(x), -x}; }

Interpolation::Interpolation(LogDensityPtr start, LogDensityPtr end, double lambda)
    : LogDensity(end->space()), start_(std::move(start)), end_(std::move(end)), lambda_(lambda) {
  if (!(lambda >= 0 && lambda <= 1)) throw SpecError("lambda", c10::str("must be from 0 to 1, got ", lambda));
  for (const auto& axis : space().axes)
    check(!axis.bounded() && !axis.circular, "stochastic layers move in R^D, this density lives on ",
          to_string(space()));
  if (!start_) start_ = std::make_shared<StandardNormalDensity>(space());
  check(start_->space().same_as(space()), "the start lives on ", to_string(start_->space()), ", the density on ",
        to_string(space()));
  register_module("start", start_);
  register_module("end", end_);
}

Tensor Interpolation::evaluate(const Tensor& x) {
  if (lambda_ == 1) return end_->log_prob(x);
  if (lambda_ == 0) return start_->log_prob(x);
  return (1 - lambda_) * start_->log_prob(x) + lambda_ * end_->log_prob(x);
}

Sloped Interpolation::evaluate_with_gradient(const Tensor& x) {
  if (lambda_ == 1) return end_->log_prob_and_gradient(x);
  if (lambda_ == 0) return start_->log_prob_and_gradient(x);
  const auto start = start_->log_prob_and_gradient(x), end = end_->log_prob_and_gradient(x);
  return {(1 - lambda_) * start.log_prob + lambda_ * end.log_prob,
          (1 - lambda_) * start.gradient + lambda_ * end.gradient};
}

}  // namespace diffeo
