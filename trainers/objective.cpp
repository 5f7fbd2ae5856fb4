#include "diffeo/trainers/objective.h"

#include <ATen/ops/full.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

namespace diffeo {

Tensor weighted_mean(const Tensor& values, const Tensor& weight) {
  if (!weight.defined()) return values.mean();
  const auto total = (values * weight).masked_fill(weight == 0, 0).sum();
  return total / weight.sum().clamp_min(std::numeric_limits<float>::min());
}

MaximumLikelihood::MaximumLikelihood(FlowPtr flow) : MaximumLikelihood(std::move(flow), Options{}) {}

MaximumLikelihood::MaximumLikelihood(FlowPtr flow, const Options& options, const Tensor& scale)
    : flow_(register_module("flow", std::move(flow))) {
  const auto& event = flow_->space().event;
  const auto columns = flow_->space().size();
  if (!(options.noise >= 0) || !std::isfinite(options.noise))
    throw SpecError("noise", c10::str("must not be negative, got ", options.noise));
  if (scale.defined())
    check(scale.numel() == columns, "maximum likelihood: expected a scale for each of the ", columns, " columns, got ",
          scale.sizes());
  // Not kept in models, but on the flow's device in its precision.
  const auto own = flow_->tensor_options();
  if (options.noise > 0)
    noise_ = register_buffer("noise", scale.defined() ? (options.noise * scale).to(own).reshape(event)
                                                      : at::full(event, options.noise, own));
  if (options.dequantize.empty()) return;
  auto discrete = at::zeros({columns}, own);
  for (size_t i = 0; i < options.dequantize.size(); ++i) {
    const auto column = options.dequantize[i];
    if (column < 0 || column >= columns)
      throw SpecError("dequantize/" + std::to_string(i),
                      c10::str("there is no column ", column, "; the flow has columns 0 to ", columns - 1));
    discrete[column] = 1;
  }
  discrete_ = register_buffer("discrete", discrete.reshape(event));
}

Tensor MaximumLikelihood::loss(const Batch& batch) {
  auto x = batch.x;
  if (discrete_.defined()) x = x + discrete_ * at::rand_like(x);
  if (noise_.defined() && is_training()) x = x + noise_ * at::randn_like(x);
  return -weighted_mean(flow_->log_prob(x, batch.context), batch.weight);
}

}  // namespace diffeo
