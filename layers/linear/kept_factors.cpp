#include "diffeo/layers/linear/kept_factors.h"

#include <ATen/ops/linalg_lu_factor_ex.h>

namespace diffeo {

Factors KeptFactors::of(const Tensor& parameter, const std::function<Tensor()>& make) {
  torch::NoGradGuard no_grad;
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool known = seen_.defined() && seen_.scalar_type() == parameter.scalar_type() &&
                     seen_.device() == parameter.device() && seen_.equal(parameter);
  if (!known) {
    auto [lu, pivots, info] = at::linalg_lu_factor_ex(make());
    factors_ = {lu, pivots, lu.diagonal().abs().log().sum()};
    seen_ = parameter.detach().clone();
  }
  return factors_;
}

}  // namespace diffeo
