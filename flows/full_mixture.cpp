#include "diffeo/flows/full_mixture.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/diag_embed.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_cholesky.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <limits>

#include "diffeo/flows/normal.h"

namespace diffeo {

FullMixture::FullMixture(const Options& options)
    : Distribution(Space::reals(at_least(1, "features", options.features))), options_(options) {
  at_least(1, "components", options.components);
  if (!(options.spread >= 0)) throw SpecError("spread", c10::str("must be at least 0, got ", options.spread));
  const auto components = options.components, features = options.features;
  logits_ = register_parameter("logits", at::zeros({components}));
  means_ = register_parameter("means", at::randn({components, features}) * options.spread);
  cholesky_ = register_parameter("cholesky", at::zeros({components, features, features}));
}

void FullMixture::set(const Tensor& weights, const Tensor& means, const Tensor& covariances) {
  const at::NoGradGuard no_grad;
  check(
      weights.sizes() == logits_.sizes() && means.sizes() == means_.sizes() && covariances.sizes() == cholesky_.sizes(),
      "full_mixture: expected weights, means and covariances of shapes ", logits_.sizes(), ", ", means_.sizes(),
      " and ", cholesky_.sizes(), ", got ", weights.sizes(), ", ", means.sizes(), " and ", covariances.sizes());
  Tensor factor;
  try {
    factor = at::linalg_cholesky(covariances);
  } catch (const c10::Error&) {
    throw Error("full_mixture: a covariance is not positive definite");
  }
  logits_.copy_(weights.log());
  means_.copy_(means);
  cholesky_.copy_(factor.tril(-1) + at::diag_embed(factor.diagonal(0, -2, -1).log()));
}

Tensor FullMixture::factors() const { return cholesky_.tril(-1) + at::diag_embed(cholesky_.diagonal(0, -2, -1).exp()); }

Tensor FullMixture::log_joint(const Tensor& x) const {
  const auto inverse = at::linalg_solve_triangular(
      factors(), at::eye(options_.features, tensor_options()).expand_as(cholesky_), /*upper=*/false);
  const auto z = at::matmul(x.unsqueeze(0) - means_.unsqueeze(1), inverse.transpose(-2, -1));  // (K, n, D)
  const auto log_weights = at::log_softmax(logits_, -1) - cholesky_.diagonal(0, -2, -1).sum(-1);
  return (standard_normal_log_prob(z) + log_weights.unsqueeze(-1)).t();
}

Tensor FullMixture::evaluate(const Tensor& x, const Tensor&) {
  const auto log_prob = at::logsumexp(log_joint(x.reshape({-1, options_.features})), -1);
  return log_prob.reshape(x.sizes().slice(0, x.dim() - 1));
}

Drawn FullMixture::simulate(at::IntArrayRef batch, const Tensor&) {
  auto shape = batch.vec();
  shape.push_back(options_.features);
  const auto z = at::randn(shape, tensor_options()).reshape({-1, options_.features});
  const auto count = z.size(0);
  // multinomial refuses to draw nothing.
  const auto drawn = at::multinomial(at::softmax(logits_, -1).detach(), std::max<int64_t>(count, 1), true);
  const auto component = drawn.narrow(0, 0, count);
  const auto of_each = at::matmul(z.unsqueeze(0), factors().transpose(-2, -1)) + means_.unsqueeze(1);  // (K, n, D)
  const auto x = of_each.gather(0, component.view({1, count, 1}).expand({1, count, options_.features})).reshape(shape);
  return {x, evaluate(x, {})};
}

namespace {

/// Rows of x that lie far apart: each with a chance proportional to its squared distance from those before.
Tensor spread_out(const Tensor& x, int64_t count) {
  auto chosen = x.index_select(0, at::randint(x.size(0), {1}, x.options().dtype(at::kLong)));
  auto distance = (x - chosen[0]).square().sum(-1);
  while (chosen.size(0) < count) {
    const auto next = at::multinomial(distance + std::numeric_limits<float>::min(), 1);
    chosen = at::cat({chosen, x.index_select(0, next)});
    distance = at::minimum(distance, (x - chosen[-1]).square().sum(-1));
  }
  return chosen;
}

struct Moments {
  Tensor weights, means, covariances;
};

/// The moments of rows (n, D) under the shares (n, K) of the components in each.
Moments moments(const Tensor& x, const Tensor& shares, const Tensor& floor) {
  const auto count = shares.sum(0) + 10 * std::numeric_limits<float>::epsilon();
  const auto means = at::matmul(shares.t(), x) / count.unsqueeze(-1);
  std::vector<Tensor> covariances;
  for (int64_t k = 0; k < count.size(0); ++k) {
    const auto centred = x - means[k];
    covariances.push_back(at::matmul(centred.t() * shares.select(1, k), centred) / count[k] + floor);
  }
  return {count / count.sum(), means, at::stack(covariances)};
}

}  // namespace

std::shared_ptr<FullMixture> fit_full_mixture(const Tensor& x, const MixtureFitOptions& options) {
  const at::NoGradGuard no_grad;
  check(x.dim() == 2, "full_mixture: expected rows (n, D), got ", x.sizes());
  check(x.size(0) >= options.components && options.components > 0, "full_mixture: ", options.components,
        " components need at least as many rows, got ", x.size(0));
  // The sums are over many rows, and covariances come near to singular.
  const auto rows = x.detach().to(at::kDouble);
  const auto variance = rows.var(0, false);
  const auto floor = at::diag_embed(options.regularisation * variance.clamp_min(1e-12 + 1e-6 * variance.mean()));
  std::shared_ptr<FullMixture> best;
  double best_likelihood = -std::numeric_limits<double>::infinity();
  for (int64_t restart = 0; restart < std::max<int64_t>(options.restarts, 1); ++restart) {
    auto mixture =
        std::make_shared<FullMixture>(FullMixture::Options{.features = rows.size(1), .components = options.components});
    mixture->to(rows.device(), at::kDouble);
    const auto centres = spread_out(rows, options.components);
    const auto square = rows.square().sum(-1, true) - 2 * at::matmul(rows, centres.t()) + centres.square().sum(-1);
    auto shares = at::zeros_like(square).scatter_(1, square.argmin(1, true), 1.0);
    double likelihood = -std::numeric_limits<double>::infinity();
    for (int64_t iteration = 0; iteration < options.iterations; ++iteration) {
      const auto [weights, means, covariances] = moments(rows, shares, floor);
      mixture->set(weights, means, covariances);
      const auto joint = mixture->log_joint(rows);  // (n, K)
      const auto log_prob = at::logsumexp(joint, -1);
      const double now = log_prob.mean().item<double>();
      shares = (joint - log_prob.unsqueeze(-1)).exp();
      if (now - likelihood < options.tolerance && iteration > 0) break;
      likelihood = now;
    }
    if (likelihood > best_likelihood || !best) best = mixture, best_likelihood = likelihood;
  }
  best->to(x.device(), x.scalar_type());
  best->eval();
  return best;
}

DIFFEO_DISTRIBUTION(full_mixture, FullMixture, "Mixture of normals with full covariances.",
                    {"one_feature", {{"features", 1}, {"components", 3}}},
                    {"two_features", {{"features", 2}, {"components", 4}}});

}  // namespace diffeo
