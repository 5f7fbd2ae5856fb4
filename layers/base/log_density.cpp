#include "diffeo/layers/base/log_density.h"

#include <torch/types.h>

#include "diffeo/layers/base/error.h"
#include "diffeo/layers/base/score.h"

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
  const torch::AutoGradMode with_gradients(true);
  const auto point = fresh_point(x);
  const auto log_prob = evaluate(point);
  return {log_prob.detach(), pulled_back({log_prob}, {torch::ones_like(log_prob)}, point)};
}

}  // namespace diffeo
