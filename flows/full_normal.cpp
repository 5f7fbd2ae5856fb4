#include "diffeo/flows/full_normal.h"

#include <ATen/ops/diag_embed.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "diffeo/flows/normal.h"

namespace diffeo {

FullNormal::FullNormal(const Options& options)
    : Distribution(Space::reals(at_least(1, "features", options.features))), options_(options) {
  mean_ = register_parameter("mean", at::zeros({options.features}));
  cholesky_ = register_parameter("cholesky", at::zeros({options.features, options.features}));
}

Tensor FullNormal::factor() const { return cholesky_.tril(-1) + at::diag_embed(cholesky_.diagonal().exp()); }

Tensor FullNormal::evaluate(const Tensor& x, const Tensor&) {
  const auto columns = (x - mean_).reshape({-1, options_.features}).t();
  const auto z = at::linalg_solve_triangular(factor(), columns, /*upper=*/false).t().reshape(x.sizes());
  return standard_normal_log_prob(z) - cholesky_.diagonal().sum();
}

Drawn FullNormal::simulate(at::IntArrayRef batch, const Tensor&) {
  auto shape = batch.vec();
  shape.push_back(options_.features);
  const auto z = at::randn(shape, tensor_options());
  return {mean_ + at::matmul(z, factor().t()), standard_normal_log_prob(z) - cholesky_.diagonal().sum()};
}

DIFFEO_DISTRIBUTION(full_normal, FullNormal, "Normal with a full, trainable covariance.",
                    {"one_feature", {{"features", 1}}}, {"two_features", {{"features", 2}}});

}  // namespace diffeo
