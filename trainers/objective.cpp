#include "diffeo/trainers/objective.h"

namespace diffeo {

Tensor weighted_mean(const Tensor& values, const Tensor& weight) {
  if (!weight.defined()) return values.mean();
  return (values * weight).sum() / weight.sum().clamp_min(std::numeric_limits<float>::min());
}

MaximumLikelihood::MaximumLikelihood(FlowPtr flow) : flow_(register_module("flow", std::move(flow))) {}

Tensor MaximumLikelihood::loss(const Batch& batch) {
  return -weighted_mean(flow_->log_prob(batch.x, batch.context), batch.weight);
}

}  // namespace diffeo
