#include "diffeo/layers/base/log_density.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "diffeo/layers/base/error.h"

namespace diffeo {

LogDensity::LogDensity(Space space) : space_(std::move(space)) {}

void LogDensity::require(const Tensor& x) const {
  check(x.defined(), "log density: expected points of shape ", to_string(space_), ", got an undefined tensor");
  const auto batch = x.dim() - static_cast<int64_t>(space_.event.size());
  check(batch >= 0 && x.sizes().slice(batch) == at::IntArrayRef(space_.event) && x.is_floating_point(),
        "log density: expected floating-point points of shape ", to_string(space_), ", got ", x.scalar_type(), " ",
        x.sizes());
}

Tensor LogDensity::log_prob(const Tensor& x) {
  require(x);
  return evaluate(x);
}

Sloped LogDensity::log_prob_and_gradient(const Tensor& x) {
  require(x);
  torch::NoGradGuard no_grad;
  return evaluate_with_gradient(x);
}

Sloped LogDensity::evaluate_with_gradient(const Tensor& x) {
  torch::AutoGradMode with_gradients(true);
  const auto point = x.detach().requires_grad_();
  const auto log_prob = evaluate(point);
  if (!log_prob.requires_grad()) return {log_prob, torch::zeros_like(x)};
  return {log_prob.detach(), torch::autograd::grad({log_prob.sum()}, {point})[0]};
}

}  // namespace diffeo
