#include "diffeo/flows/score.h"

#include <ATen/ops/ones_like.h>

#include "diffeo/layers/base/score.h"

namespace diffeo {

Sloped score_of(Distribution& distribution, const Tensor& x, const Tensor& context) {
  const torch::AutoGradMode for_derivatives(true);
  const auto point = fresh_point(x);
  const auto log_prob = distribution.log_prob(point, context);
  return {log_prob.detach(), pulled_back({log_prob}, {at::ones_like(log_prob)}, point)};
}

}  // namespace diffeo
