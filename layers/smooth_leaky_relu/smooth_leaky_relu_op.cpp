#include "diffeo/layers/smooth_leaky_relu/smooth_leaky_relu_op.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sigmoid.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>

#include "diffeo/layers/base/cpu_kernels.h"
#include "diffeo/layers/base/parallel.h"
#include "diffeo/layers/smooth_leaky_relu/smooth_leaky_relu_cpu.h"

namespace diffeo::smooth_leaky_relu {

DIFFEO_CPU_KERNELS(CpuKernels)

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Rows for one thread at least: about 30 microseconds of work.
int64_t grain(int64_t columns) { return std::max<int64_t>(1, 32768 / columns); }

template <class T>
Pass<T> pass_over(const Tensor& x, double below, double bend) {
  return {.below = below, .bend = bend, .columns = x.size(-1), .x = x.const_data_ptr<T>()};
}

template <class T>
void run(const Pass<T>& pass, int64_t rows, void (*kernel)(const Pass<T>&, int64_t, int64_t)) {
  parallel_for(0, rows, grain(pass.columns), [&](int64_t begin, int64_t end) { kernel(pass, begin, end); });
}

Tensor rows_of(const Tensor& x) { return at::empty(x.sizes().slice(0, x.dim() - 1), x.options()); }

Applied forward(const Tensor& given, double below, double bend) {
  const auto x = given.contiguous();
  auto value = at::empty_like(x), log_det = rows_of(x);
  if (x.numel() == 0) return {value, log_det.zero_()};
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "diffeo::smooth_leaky_relu", [&] {
    auto pass = pass_over<scalar_t>(x, below, bend);
    pass.value = value.mutable_data_ptr<scalar_t>();
    pass.log_det = log_det.mutable_data_ptr<scalar_t>();
    run(pass, log_det.numel(), cpu_kernels<scalar_t>().forward);
  });
  return {value, log_det};
}

Tensor backward(const Tensor& given, const Tensor& by_value, const Tensor& by_log_det, double below, double bend) {
  const auto x = given.contiguous(), gv = by_value.contiguous(), gl = by_log_det.contiguous();
  auto by_x = at::empty_like(x);
  if (x.numel() == 0) return by_x;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "diffeo::smooth_leaky_relu_backward", [&] {
    auto pass = pass_over<scalar_t>(x, below, bend);
    pass.by_value = gv.const_data_ptr<scalar_t>();
    pass.by_log_det = gl.const_data_ptr<scalar_t>();
    pass.by_x = by_x.mutable_data_ptr<scalar_t>();
    run(pass, gl.numel(), cpu_kernels<scalar_t>().backward);
  });
  return by_x;
}

/// Derivatives of a loss by the arguments of `backward`, given those by its result.
struct Second {
  Tensor x, by_value, by_log_det;
};

Second second(const Tensor& given, const Tensor& by_value, const Tensor& by_log_det, const Tensor& given_along,
              double below, double bend) {
  const auto x = given.contiguous(), gv = by_value.contiguous(), gl = by_log_det.contiguous(),
             along = given_along.contiguous();
  Second found{at::empty_like(x), at::empty_like(x), rows_of(x)};
  if (x.numel() == 0) return {found.x, found.by_value, found.by_log_det.zero_()};
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "diffeo::smooth_leaky_relu_second", [&] {
    auto pass = pass_over<scalar_t>(x, below, bend);
    pass.by_value = gv.const_data_ptr<scalar_t>();
    pass.by_log_det = gl.const_data_ptr<scalar_t>();
    pass.along = along.const_data_ptr<scalar_t>();
    pass.along_x = found.x.mutable_data_ptr<scalar_t>();
    pass.along_by_value = found.by_value.mutable_data_ptr<scalar_t>();
    pass.along_by_log_det = found.by_log_det.mutable_data_ptr<scalar_t>();
    run(pass, gl.numel(), cpu_kernels<scalar_t>().second);
  });
  return found;
}

/// The same, with a graph.
Second second_reference(const Tensor& x, const Tensor& by_value, const Tensor& by_log_det, const Tensor& along,
                        double below, double bend) {
  const auto sigmoid = at::sigmoid(x), slope = below + bend * sigmoid, curve = bend * sigmoid * (1 - sigmoid),
             ratio = curve / slope, twist = ratio * (1 - 2 * sigmoid) - ratio.square();
  return {along * (by_value * curve + by_log_det.unsqueeze(-1) * twist), along * slope, (along * ratio).sum(-1)};
}

void save(AutogradContext* ctx, const variable_list& tensors, double below, double bend) {
  ctx->save_for_backward(tensors);
  ctx->saved_data["below"] = below;
  ctx->saved_data["bend"] = bend;
}

std::pair<double, double> saved_slopes(AutogradContext* ctx) {
  return {ctx->saved_data["below"].toDouble(), ctx->saved_data["bend"].toDouble()};
}

struct BackwardNode : torch::autograd::Function<BackwardNode> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& by_value, const Tensor& by_log_det,
                        double below, double bend) {
    save(ctx, {x, by_value, by_log_det}, below, bend);
    return smooth_leaky_relu::backward(x, by_value, by_log_det, below, bend);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const auto [below, bend] = saved_slopes(ctx);
    const auto by =
        (at::GradMode::is_enabled() ? second_reference : second)(saved[0], saved[1], saved[2], grads[0], below, bend);
    return {by.x, by.by_value, by.by_log_det, {}, {}};
  }
};

struct Node : torch::autograd::Function<Node> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, double below, double bend) {
    save(ctx, {x}, below, bend);
    const auto [value, log_det] = smooth_leaky_relu::forward(x, below, bend);
    return {value, log_det};
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto x = ctx->get_saved_variables()[0];
    const auto [below, bend] = saved_slopes(ctx);
    const auto by_x = at::GradMode::is_enabled() ? BackwardNode::apply(x, grads[0], grads[1], below, bend)
                                                 : smooth_leaky_relu::backward(x, grads[0], grads[1], below, bend);
    return {by_x, {}, {}};
  }
};

}  // namespace

bool has_kernel(const Tensor& x, double below, double bend) {
  const double least = x.scalar_type() == at::kDouble ? std::numeric_limits<double>::min()
                                                      : static_cast<double>(std::numeric_limits<float>::min());
  return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble) && x.dim() > 0 &&
         x.size(-1) > 0 && std::min(below, below + bend) >= least;
}

Applied apply(const Tensor& x, double below, double bend) {
  if (!at::GradMode::is_enabled()) return forward(x, below, bend);
  const auto out = Node::apply(x, below, bend);
  return {out[0], out[1]};
}

}  // namespace diffeo::smooth_leaky_relu
