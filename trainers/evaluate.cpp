#include "diffeo/trainers/evaluate.h"
#include "diffeo/layers/base/training_guard.h"

namespace diffeo {

Batch to(const Batch& batch, torch::Device device) {
  const auto moved = [&](const Tensor& tensor) { return tensor.defined() ? tensor.to(device) : tensor; };
  return {moved(batch.x), moved(batch.context), moved(batch.weight), moved(batch.label)};
}

double mean_loss(Objective& objective, const Dataset& data, int64_t batch_size, torch::Device device) {
  torch::NoGradGuard no_grad;
  const TrainingGuard evaluation(objective, false);
  const auto stream = data.in_order(batch_size);
  // Sums stay on the device: one wait at the end.
  Tensor total, weights;
  for (Batch rows; stream->next(rows);) {
    const auto batch = to(rows, device);
    const auto loss = objective.loss(batch).to(torch::kFloat64);
    const auto weight = batch.weight.defined() ? batch.weight.sum(torch::kFloat64)
                                               : loss.new_full({}, static_cast<double>(batch.x.size(0)));
    total = total.defined() ? total + loss * weight : loss * weight;
    weights = weights.defined() ? weights + weight : weight;
  }
  return total.defined() ? (total / weights).item<double>() : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace diffeo
