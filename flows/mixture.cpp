#include "diffeo/flows/mixture.h"

#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include "diffeo/flows/normal.h"

namespace diffeo {

Mixture::Mixture(const Options& options)
    : Distribution(Space::reals(at_least(1, "features", options.features))), options_(options) {
  at_least(1, "components", options.components);
  if (!(options.spread >= 0)) throw SpecError("spread", c10::str("must be at least 0, got ", options.spread));
  logits_ = register_parameter("logits", at::zeros({options.components}));
  means_ = register_parameter("means", at::randn({options.components, options.features}) * options.spread);
  log_scales_ = register_parameter("log_scales", at::zeros({options.components, options.features}));
}

Tensor Mixture::evaluate(const Tensor& x, const Tensor&) {
  const auto z = (x.unsqueeze(-2) - means_) * (-log_scales_).exp();
  const auto each = standard_normal_log_prob(z) - log_scales_.sum(-1);  // (*batch, K)
  return at::logsumexp(each + at::log_softmax(logits_, -1), -1);
}

Drawn Mixture::simulate(at::IntArrayRef batch, const Tensor&) {
  auto shape = batch.vec();
  shape.push_back(options_.features);
  const auto z = at::randn(shape, tensor_options());
  const auto count = z.numel() / options_.features;
  // multinomial refuses to draw nothing.
  const auto drawn = at::multinomial(at::softmax(logits_, -1).detach(), std::max<int64_t>(count, 1), true);
  const auto component = drawn.narrow(0, 0, count);
  const auto of_each = [&](const Tensor& rows) { return rows.index_select(0, component).view(shape); };
  const auto x = of_each(means_) + of_each(log_scales_).exp() * z;
  return {x, evaluate(x, {})};
}

DIFFEO_DISTRIBUTION(mixture, Mixture, "Mixture of normals with independent features.",
                    {"one_feature", {{"features", 1}, {"components", 3}}},
                    {"two_features", {{"features", 2}, {"components", 4}}});

}  // namespace diffeo
