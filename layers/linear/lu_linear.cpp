#include "diffeo/layers/linear/lu_linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/diag_embed.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "diffeo/layers/base/random_order.h"
#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

constexpr double least_diagonal = 1e-3;

}  // namespace

LuLinear::LuLinear(const Options& options)
    : Layer(Space::reals(at_least(1, "features", options.features))), options_(options) {
  check_choice("permute", options.permute, {"none", "random"});
  lu_ = register_parameter("lu", at::eye(options.features) * std::log(std::expm1(1 - least_diagonal)));
  if (options.bias) bias_ = register_parameter("bias", at::zeros({options.features}));
  if (options.permute == "random")
    inverse_order_ =
        register_buffer("inverse_order", at::tensor(inverse_order(random_order(options.features, options.seed))));
}

Tensor LuLinear::upper_diagonal() const { return at::softplus(lu_.diagonal()) + least_diagonal; }

Mapped LuLinear::map(const Tensor& x, const Tensor&) {
  const auto diagonal = upper_diagonal();
  const auto lower = lu_.tril(-1), upper = lu_.triu(1) + at::diag_embed(diagonal);
  // (L + 1) U: one product of small matrices, so that the batch meets only one.
  auto weight = at::addmm(upper, lower, upper);
  // The columns are put in order, not the points.
  if (inverse_order_.defined()) weight = weight.index_select(1, inverse_order_);
  const auto batch = x.sizes().slice(0, x.dim() - 1);
  return {at::linear(x, weight, bias_), diagonal.log().sum().expand(batch)};
}

Mapped LuLinear::unmap(const Tensor& y, const Tensor&) {
  const auto diagonal = upper_diagonal();
  const auto batch = y.sizes().slice(0, y.dim() - 1);
  const auto rows = (bias_.defined() ? y - bias_ : y).reshape({-1, options_.features});
  // Points are rows: y = x U^T L^T. The solver reads only the triangle that it is told of.
  auto x = at::linalg_solve_triangular(lu_.t(), rows, /*upper=*/true, /*left=*/false, /*unitriangular=*/true);
  const auto upper = lu_.triu(1) + at::diag_embed(diagonal);
  x = at::linalg_solve_triangular(upper.t(), x, /*upper=*/false, /*left=*/false, /*unitriangular=*/false);
  if (inverse_order_.defined()) x = x.index_select(1, inverse_order_);
  return {x.view(y.sizes()), -diagonal.log().sum().expand(batch)};
}

DIFFEO_LAYER(lu_linear, LuLinear, "Linear map as a product of triangular matrices (Kingma and Dhariwal 2018).",
             {"plain", {{"features", 3}}}, {"one_feature", {{"features", 1}}},
             {"permuted", {{"features", 5}, {"permute", "random"}, {"seed", 3}, {"bias", false}}});

}  // namespace diffeo
