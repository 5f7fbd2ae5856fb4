#include "diffeo/flows/whitened_latent.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "diffeo/layers/base/constant_log_det_guard.h"
#include "diffeo/layers/base/training_guard.h"
#include "diffeo/layers/linear/dense_linear.h"
#include "diffeo/layers/sequential/sequential.h"

namespace diffeo {
namespace {

DenseLinear& last_matrix(const std::vector<LayerPtr>& layers) {
  auto* const last = layers.empty() ? nullptr : dynamic_cast<DenseLinear*>(layers.back().get());
  check(last != nullptr, "whiten: the last layer must be a dense_linear, ",
        layers.empty() ? "but the flow has no layers"
                       : "but it is a " + layers.back()->spec().value("type", std::string("layer")));
  return *last;
}

const std::vector<LayerPtr>& layers_of(const Flow& flow) {
  return static_cast<const Sequential&>(*flow.layers()).layers();
}

}  // namespace

void check_can_whiten(const Flow& flow) { last_matrix(layers_of(flow)); }

void whiten_latent(Flow& flow, BatchStream& rows) {
  torch::NoGradGuard no_grad;
  const TrainingGuard looks_only(flow, false);
  const ConstantLogDetGuard without_constants;
  const auto& layers = layers_of(flow);
  auto& last = last_matrix(layers);
  const auto options = flow.tensor_options().dtype(torch::kFloat64);
  const auto features = flow.base()->space().size();
  // Moments about the mean of the first batch, so that a far mean takes no digits from the covariance.
  Tensor centre, sum = at::zeros({features}, options), squares = at::zeros({features, features}, options);
  double weight = 0;
  int64_t counted = 0;
  for (Batch batch; rows.next(batch);) {
    auto x = batch.x.to(flow.tensor_options());
    const auto context = flow.embedded(batch.context.defined() ? batch.context.to(flow.tensor_options()) : Tensor());
    for (size_t i = 0; i + 1 < layers.size(); ++i)
      x = layers[i]->forward(x, layers[i]->context_size() > 0 ? context : Tensor()).value;
    x = x.flatten(1).to(torch::kFloat64);
    const auto weights = batch.weight.defined() ? batch.weight.to(options) : at::ones({x.size(0)}, options);
    if (!centre.defined()) centre = x.mean(0);
    x = x - centre;
    const auto weighted = x * weights.unsqueeze(1);
    sum += weighted.sum(0);
    squares += weighted.t().mm(x);
    weight += weights.sum().item<double>();
    counted += (weights > 0).sum().item<int64_t>();
  }
  check(counted >= 2, "whiten: a covariance needs at least 2 rows with weight, got ", counted);
  const auto mean = sum / weight;
  last.whiten(centre + mean, squares / weight - mean.outer(mean));
}

}  // namespace diffeo
