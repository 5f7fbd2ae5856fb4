#include "diffeo/layers/sigmoid_mixture/sigmoid_mixture.h"

#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/where.h>

#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

constexpr double largest_log_slope = 3;

/// log a, b and log w, each (*batch, D, K) or (D, K).
struct Components {
  Tensor log_slope, shift, log_weight;

  Components(const Tensor& parameters, int64_t count) {
    const auto raw = parameters.narrow(-1, 0, count);
    log_slope = raw / (1 + (raw / largest_log_slope).abs());
    shift = parameters.narrow(-1, count, count);
    log_weight = at::log_softmax(parameters.narrow(-1, 2 * count, count), -1);
  }
};

/// y alone.
Tensor value_at(const Tensor& x, const Components& c) {
  const auto inner = x.unsqueeze(-1) * c.log_slope.exp() + c.shift;
  return at::logsumexp(c.log_weight + at::log_sigmoid(inner), -1) -
         at::logsumexp(c.log_weight + at::log_sigmoid(-inner), -1);
}

/// y and log|dy/dx| for each feature. Of the mixture and of 1 minus it, the logarithms are each computed by itself, so
/// that neither tail loses digits.
std::pair<Tensor, Tensor> value_and_log_slope(const Tensor& x, const Components& c) {
  const auto inner = x.unsqueeze(-1) * c.log_slope.exp() + c.shift;
  const auto low = at::log_sigmoid(inner), high = at::log_sigmoid(-inner);
  const auto log_one = at::logsumexp(c.log_weight + low, -1), log_rest = at::logsumexp(c.log_weight + high, -1);
  const auto log_density = at::logsumexp(c.log_weight + c.log_slope + low + high, -1);
  return {log_one - log_rest, log_density - log_one - log_rest};
}

}  // namespace

SigmoidMixture::SigmoidMixture(const Options& options) : options_(options) {
  at_least(1, "components", options.components);
}

std::vector<double> SigmoidMixture::identity() const {
  // A little apart, since components that are the same have the same gradients and stay so.
  std::vector<double> parameters(3 * options_.components, 0.0);
  const auto last = static_cast<double>(options_.components - 1);
  for (int64_t k = 0; k <= last; ++k)
    parameters[options_.components + k] = last == 0 ? 0 : static_cast<double>(2 * k) / last - 1;
  return parameters;
}

Mapped SigmoidMixture::forward(const Tensor& x, const Tensor& parameters) const {
  const auto [value, log_slope] = value_and_log_slope(x, Components(parameters, options_.components));
  return {value, log_slope.sum(-1)};
}

Mapped SigmoidMixture::inverse(const Tensor& y, const Tensor& parameters) const {
  const Components components(parameters, options_.components);
  Tensor x;
  {
    torch::NoGradGuard no_grad;
    // A mixture lies between its components, so its inverse does between theirs.
    const auto of_each = (y.unsqueeze(-1) - components.shift) * (-components.log_slope).exp();
    auto lower = of_each.amin(-1), upper = of_each.amax(-1);
    const int halvings = y.scalar_type() == at::kDouble ? 60 : 30;
    for (int i = 0; i < halvings; ++i) {
      const auto middle = lower + 0.5 * (upper - lower);
      const auto below = value_at(middle, components) < y;
      lower = at::where(below, middle, lower);
      upper = at::where(below, upper, middle);
    }
    x = lower + 0.5 * (upper - lower);
  }
  // Steps of Newton's method from the root: nothing to the value, but one of them has the first derivatives of the
  // implicit function, two of them the second ones.
  Tensor log_slope;
  for (int i = 0; i < 2; ++i) {
    Tensor value;
    std::tie(value, log_slope) = value_and_log_slope(x, components);
    x = x + (y - value) * (-log_slope).exp();
  }
  return {x, -value_and_log_slope(x, components).second.sum(-1)};
}

DIFFEO_UNIVARIATE(sigmoid_mixture, SigmoidMixture,
                  "The logit of a mixture of sigmoids, inverted by bisection (Huang et al. 2018).",
                  "y = logit(sum_k w_k sigmoid(a_k x + b_k)), log y' = log sum_k w_k a_k s_k (1 - s_k) - log p (1 - p)",
                  {"four", Json::object()}, {"one", {{"components", 1}}});

}  // namespace diffeo
