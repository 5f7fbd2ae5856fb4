#include "diffeo/flows/conditional_normal.h"

#include <ATen/ops/randn_like.h>

#include "diffeo/flows/normal.h"

namespace diffeo {
namespace {

constexpr double largest_log_deviation = 7;

}  // namespace

ConditionalNormal::ConditionalNormal(const Options& options)
    : Distribution(Space::reals(at_least(1, "features", options.features)), at_least(1, "context", options.context)),
      options_(options) {
  net_ = within("net", [&] { return build_net(options.net, options.context, 0, 2 * options.features); });
  register_module("net", net_);
}

std::pair<Tensor, Tensor> ConditionalNormal::moments(const Tensor& context) {
  const auto parameters = net_->forward(context).unflatten(-1, {2, options_.features});
  const auto a = parameters.select(-2, 1);
  return {parameters.select(-2, 0), a / (1 + (a / largest_log_deviation).abs())};
}

Tensor ConditionalNormal::evaluate(const Tensor& x, const Tensor& context) {
  const auto [mean, s] = moments(context);
  return standard_normal_log_prob((x - mean) * (-s).exp()) - s.sum(-1);
}

Drawn ConditionalNormal::simulate(at::IntArrayRef, const Tensor& context) {
  const auto [mean, s] = moments(context);
  const auto z = at::randn_like(mean);
  return {mean + s.exp() * z, standard_normal_log_prob(z) - s.sum(-1)};
}

DIFFEO_DISTRIBUTION(conditional_normal, ConditionalNormal, "Normal with mean and deviation made of the context.",
                    {"one_feature", {{"features", 1}, {"context", 2}, {"net", {{"width", 8}}}}},
                    {"two_features",
                     {{"features", 2}, {"context", 1}, {"net", {{"width", 8}, {"activation", "tanh"}}}}});

}  // namespace diffeo
