#include "diffeo/layers/linear/dense_linear.h"

#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_det.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linalg_lu_solve.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_slogdet.h>
#include <ATen/ops/linalg_solve.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "diffeo/layers/base/registry.h"
#include "diffeo/layers/nets/matrix_product.h"

namespace diffeo {
namespace {

Tensor rotation(int64_t features) {
  const auto [q, r] = at::linalg_qr(at::randn({features, features}, at::kDouble));
  auto turned = q * r.diagonal().sign();  // uniform over all orthogonal matrices
  if (at::linalg_det(turned).item<double>() < 0) turned.select(1, 0).neg_();
  return turned.to(at::kFloat);
}

Tensor first_weight(const DenseLinear::Options& options) {
  check_choice("start", options.start, {"identity", "minus_identity", "rotation"});
  if (options.start == "rotation") return rotation(options.features);
  return options.start == "identity" ? at::eye(options.features) : -at::eye(options.features);
}

}  // namespace

DenseLinear::DenseLinear(const Options& options)
    : Layer(Space::reals(at_least(1, "features", options.features))), options_(options) {
  weight_ = register_parameter("weight", first_weight(options));
  if (options.bias) bias_ = register_parameter("bias", at::zeros({options.features}));
}

void DenseLinear::whiten(const Tensor& mean, const Tensor& covariance) {
  torch::NoGradGuard no_grad;
  check(bias_.defined(), "dense_linear: whitening moves the mean, for which it needs bias=true");
  check(
      covariance.isfinite().all().item<bool>() && mean.isfinite().all().item<bool>(),
      "dense_linear: whitening needs a mean and a covariance of finite numbers; the points have NaN or infinite ones");
  const auto [variances, directions] = at::linalg_eigh(covariance.to(at::kDouble));
  const double largest = variances[-1].item<double>();
  check(largest > 0, "dense_linear: cannot whiten points that are all the same");
  const auto weight = (directions * variances.clamp_min(1e-6 * largest).rsqrt()).mm(directions.t());
  weight_.copy_(weight);
  bias_.copy_(-weight.mv(mean.to(at::kDouble)));
}

Factors DenseLinear::factors() {
  return kept_.of(weight_, [&] { return weight_.detach(); });
}

Tensor DenseLinear::log_det() {
  // Its backward pass takes the factors of the forward pass.
  return in_graph() ? std::get<1>(at::linalg_slogdet(weight_)) : factors().log_det;
}

Tensor DenseLinear::linear(const Tensor& v) {
  return matrix_product(v.reshape({-1, options_.features}), weight_, false, true).view(v.sizes());
}

Tensor DenseLinear::transposed(const Tensor& u) {
  return matrix_product(u.reshape({-1, options_.features}), weight_).view(u.sizes());
}

Tensor DenseLinear::map_value(const Tensor& x, const Tensor&) {
  return matrix_product(x.reshape({-1, options_.features}), weight_, false, true, bias_).view(x.sizes());
}

Mapped DenseLinear::map(const Tensor& x, const Tensor& context) {
  return {map_value(x, context), log_det().expand(x.sizes().slice(0, x.dim() - 1))};
}

Tensor DenseLinear::unmap_value(const Tensor& y, const Tensor&) {
  const auto rows = (bias_.defined() ? y - bias_ : y).reshape({-1, options_.features});
  if (in_graph()) return at::linalg_solve(weight_.t(), rows, /*left=*/false).view(y.sizes());
  const auto [lu, pivots, log_det] = factors();
  return at::linalg_lu_solve(lu, pivots, rows.t()).t().reshape(y.sizes());
}

Mapped DenseLinear::unmap(const Tensor& y, const Tensor& context) {
  return {unmap_value(y, context), log_det().neg().expand(y.sizes().slice(0, y.dim() - 1))};
}

DIFFEO_LAYER(dense_linear, DenseLinear, "Linear map by a matrix of full rank, held as it is (Chao et al. 2023).",
             "y = W x + b, log|det| = log|det W|",
             "D^2 forward, and D^3 once for each value of W for the determinant or the inverse; inverse D^2",
             {"plain", {{"features", 3}}}, {"one_feature", {{"features", 1}, {"start", "minus_identity"}}},
             {"rotation", {{"features", 5}, {"bias", false}, {"start", "rotation"}}});

}  // namespace diffeo
