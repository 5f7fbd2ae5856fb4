#include "diffeo/trainers/noisy_data.h"

#include <ATen/ops/full.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>

#include "diffeo/layers/base/ranges.h"

namespace diffeo {

NoisyData::NoisyData(ObjectivePtr objective, const Flow& like, const Options& options, const Tensor& scale)
    : objective_(register_module("objective", std::move(objective))) {
  const auto& event = like.space().event;
  const auto columns = like.space().size();
  not_negative("noise", options.noise);
  if (scale.defined())
    check(scale.numel() == columns, "noise: expected a scale for each of the ", columns, " columns, got ",
          scale.sizes());
  // Not kept in models, but on the flow's device in its precision.
  const auto own = like.tensor_options();
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

Tensor NoisyData::loss(const Batch& batch) {
  auto noisy = batch;
  if (discrete_.defined()) noisy.x = noisy.x + discrete_ * at::rand_like(noisy.x);
  if (noise_.defined() && is_training()) noisy.x = noisy.x + noise_ * at::randn_like(noisy.x);
  return objective_->loss(noisy);
}

}  // namespace diffeo
