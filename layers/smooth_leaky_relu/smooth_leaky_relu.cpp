#include "diffeo/layers/smooth_leaky_relu/smooth_leaky_relu.h"

#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>

#include "diffeo/layers/base/ranges.h"
#include "diffeo/layers/base/registry.h"
#include "diffeo/layers/smooth_leaky_relu/smooth_leaky_relu_op.h"

namespace diffeo {
namespace {

/// y = below x + bend softplus(x): the slope goes from `below` to `below` + `bend`.
struct Bend {
  double below, bend;

  /// LibTorch's softplus is linear beyond a threshold of 20, where float64 still tells the difference.
  Tensor value(const Tensor& x) const { return below * x + bend * at::softplus(x, 1, 40); }
  Tensor slope(const Tensor& x) const { return below + bend * at::sigmoid(x); }
  /// The inverse of the rectifier with the same slopes and a corner.
  Tensor cornered_inverse(const Tensor& y) const { return at::where(y < 0, y / below, y / (below + bend)); }
};

constexpr int most_steps = 100;

/// The x with bend.value(x) = y. The map lies between the cornered one and that plus bend log 2, so x lies between
/// their inverses; and as the slope is monotone, all Newton steps but the first go the same way and none overshoots.
Tensor solve(const Bend& bend, const Tensor& y) {
  const auto one = bend.cornered_inverse(y), other = bend.cornered_inverse(y - bend.bend * std::log(2.0));
  const auto lower = at::minimum(one, other), upper = at::maximum(one, other);
  const double unit = y.scalar_type() == torch::kFloat64 ? std::numeric_limits<double>::epsilon()
                                                         : std::numeric_limits<float>::epsilon();
  auto x = one;
  for (int step = 0; step < most_steps; ++step) {
    const auto next = at::minimum(at::maximum(x - (bend.value(x) - y) / bend.slope(x), lower), upper);
    const bool done = ((next - x).abs() <= 2 * unit * (1 + x.abs())).all().item<bool>();
    x = next;
    if (done) break;
  }
  return x;
}

/// dx/dy = 1 / slope(x), in terms of the result, so that it can be differentiated again.
struct InverseNode : torch::autograd::Function<InverseNode> {
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& y, double below, double bend) {
    const auto x = solve({below, bend}, y);
    ctx->save_for_backward({x});
    ctx->saved_data["below"] = below;
    ctx->saved_data["bend"] = bend;
    return x;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const Bend bend{ctx->saved_data["below"].toDouble(), ctx->saved_data["bend"].toDouble()};
    return {grads[0] / bend.slope(ctx->get_saved_variables()[0]), {}, {}};
  }
};

Bend bend_of(const SmoothLeakyRelu::Options& options) {
  return {options.slope + (options.residual ? 1 : 0), 1 - options.slope};
}

}  // namespace

SmoothLeakyRelu::SmoothLeakyRelu(const Options& options) : options_(options) { above_zero("slope", options.slope); }

Mapped SmoothLeakyRelu::forward(const Tensor& x, const Tensor&) const {
  const auto bend = bend_of(options_);
  if (smooth_leaky_relu::has_kernel(x, bend.below, bend.bend)) {
    const auto [value, log_det] = smooth_leaky_relu::apply(x, bend.below, bend.bend);
    return {value, log_det};
  }
  return {bend.value(x), bend.slope(x).log().sum(-1)};
}

Mapped SmoothLeakyRelu::inverse(const Tensor& y, const Tensor&) const {
  const auto bend = bend_of(options_);
  const auto x = InverseNode::apply(y, bend.below, bend.bend);
  return {x, -bend.slope(x).log().sum(-1)};
}

DIFFEO_UNIVARIATE(smooth_leaky_relu, SmoothLeakyRelu,
                  "A leaky rectifier without a corner (Chao et al. 2023).", "y = a x + (1 - a) log(1 + e^x)",
                  {"plain", Json::object()}, {"residual", {{"residual", true}}}, {"steep", {{"slope", 3.0}}});

}  // namespace diffeo
