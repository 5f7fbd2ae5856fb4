#include "diffeo/layers/linear/lu_linear.h"

#include <ATen/ops/eye.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "diffeo/layers/base/random_order.h"
#include "diffeo/layers/base/registry.h"
#include "diffeo/layers/linear/lu_op.h"
#include "diffeo/layers/linear/positive_diagonal.h"

namespace diffeo {

LuLinear::LuLinear(const Options& options)
    : Layer(Space::reals(at_least(1, "features", options.features))), options_(options) {
  check_choice("permute", options.permute, {"none", "random"});
  lu_ = register_parameter("lu", at::eye(options.features) * raw_diagonal_of_one());
  if (options.bias) bias_ = register_parameter("bias", at::zeros({options.features}));
  if (options.permute == "random")
    inverse_order_ =
        register_buffer("inverse_order", at::tensor(inverse_order(random_order(options.features, options.seed))));
}

Mapped LuLinear::map(const Tensor& x, const Tensor&) {
  const auto [value, log_det] = lu::apply(x, lu_, bias_, inverse_order_, false);
  return {value, log_det};
}

Mapped LuLinear::unmap(const Tensor& y, const Tensor&) {
  const auto [value, log_det] = lu::apply(y, lu_, bias_, inverse_order_, true);
  return {value, log_det};
}

DIFFEO_LAYER(lu_linear, LuLinear, "Linear map as a product of triangular matrices (Kingma and Dhariwal 2018).", "y = P L U x + b, log|det| = sum_i log U_ii", "D^2 both ways",
             {"plain", {{"features", 3}}}, {"one_feature", {{"features", 1}}},
             {"permuted", {{"features", 5}, {"permute", "random"}, {"seed", 3}, {"bias", false}}});

}  // namespace diffeo
