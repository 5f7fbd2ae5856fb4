#include "diffeo/layers/linear/lu_linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "diffeo/layers/base/random_order.h"
#include "diffeo/layers/base/registry.h"
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
  const PositiveUpper upper(lu_);
  // (L + 1) U: one product of small matrices, so that the batch meets only one.
  auto weight = at::addmm(upper.matrix, lu_.tril(-1), upper.matrix);
  // The columns are put in order, not the points.
  if (inverse_order_.defined()) weight = weight.index_select(1, inverse_order_);
  return {at::linear(x, weight, bias_), upper.log_det.expand(x.sizes().slice(0, x.dim() - 1))};
}

Mapped LuLinear::unmap(const Tensor& y, const Tensor&) {
  const PositiveUpper upper(lu_);
  const auto rows = (bias_.defined() ? y - bias_ : y).reshape({-1, options_.features});
  // The solver reads only the triangle that it is told of.
  auto x = at::linalg_solve_triangular(lu_, rows.t(), /*upper=*/false, /*left=*/true, /*unitriangular=*/true);
  x = at::linalg_solve_triangular(upper.matrix, x, /*upper=*/true).t();
  if (inverse_order_.defined()) x = x.index_select(1, inverse_order_);
  return {x.reshape(y.sizes()), -upper.log_det.expand(y.sizes().slice(0, y.dim() - 1))};
}

DIFFEO_LAYER(lu_linear, LuLinear, "Linear map as a product of triangular matrices (Kingma and Dhariwal 2018).",
             {"plain", {{"features", 3}}}, {"one_feature", {{"features", 1}}},
             {"permuted", {{"features", 5}, {"permute", "random"}, {"seed", 3}, {"bias", false}}});

}  // namespace diffeo
