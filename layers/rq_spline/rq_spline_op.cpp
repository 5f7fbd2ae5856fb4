#include "diffeo/layers/rq_spline/rq_spline_op.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "diffeo/layers/base/cpu_kernels.h"
#include "diffeo/layers/base/parallel.h"
#include "diffeo/layers/rq_spline/rq_spline_cpu.h"
#include "diffeo/layers/rq_spline/rq_spline_schema.h"

TORCH_LIBRARY_FRAGMENT(diffeo, ops) {
  ops.def("rq_spline(Tensor x, Tensor parameters, float[] shape, bool inverse) -> (Tensor value, Tensor log_det)");
  ops.def(
      "rq_spline_backward(Tensor x, Tensor parameters, Tensor by_value, Tensor by_log_det, float[] shape, bool inverse)"
      " -> (Tensor by_x, Tensor by_parameters)");
}

namespace diffeo::rq_spline {

DIFFEO_CPU_KERNELS(CpuKernels)

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Rows for one thread at least: about 30 microseconds of work.
int64_t grain(int64_t columns) { return std::max<int64_t>(1, 2048 / std::max<int64_t>(columns, 1)); }

Pair forward_cpu(const Tensor& x, const Tensor& parameters, at::ArrayRef<double> numbers, bool inverse) {
  const auto xc = x.contiguous(), pc = parameters.contiguous();
  auto value = at::empty_like(xc), log_det = at::empty(x.sizes().slice(0, x.dim() - 1), x.options());
  if (x.numel() == 0) return {value, log_det.zero_()};
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "diffeo::rq_spline", [&] {
    Pass<scalar_t> pass{
        .shape = shape_from(numbers), .inverse = inverse, .shared = is_shared(x, parameters), .columns = x.size(-1)};
    pass.x = xc.const_data_ptr<scalar_t>();
    pass.parameters = pc.const_data_ptr<scalar_t>();
    pass.value = value.mutable_data_ptr<scalar_t>();
    pass.log_det = log_det.mutable_data_ptr<scalar_t>();
    const auto& kernels = cpu_kernels<scalar_t>();
    parallel_for(0, log_det.numel(), grain(pass.columns),
                 [&](int64_t begin, int64_t end) { kernels.forward(pass, begin, end); });
  });
  return {value, log_det};
}

Pair backward_cpu(const Tensor& x, const Tensor& parameters, const Tensor& by_value, const Tensor& by_log_det,
                  at::ArrayRef<double> numbers, bool inverse) {
  const auto xc = x.contiguous(), pc = parameters.contiguous(), gv = by_value.contiguous(),
             gl = by_log_det.contiguous();
  auto by_x = at::empty_like(xc), by_parameters = at::empty_like(pc);
  if (x.numel() == 0) return {by_x, by_parameters.zero_()};
  const bool shared = is_shared(x, parameters);
  const int64_t rows = gl.numel(), blocks = (rows + rows_of_shared_block - 1) / rows_of_shared_block;
  // Always the same blocks, however many threads: the sum over the batch does not depend on them.
  auto partial = shared && blocks > 1 ? at::empty({blocks, pc.size(0), pc.size(1)}, pc.options()) : by_parameters;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "diffeo::rq_spline_backward", [&] {
    Pass<scalar_t> pass{.shape = shape_from(numbers), .inverse = inverse, .shared = shared, .columns = x.size(-1)};
    pass.x = xc.const_data_ptr<scalar_t>();
    pass.parameters = pc.const_data_ptr<scalar_t>();
    pass.by_value = gv.const_data_ptr<scalar_t>();
    pass.by_log_det = gl.const_data_ptr<scalar_t>();
    pass.by_x = by_x.mutable_data_ptr<scalar_t>();
    pass.by_parameters = partial.mutable_data_ptr<scalar_t>();
    const auto& kernels = cpu_kernels<scalar_t>();
    if (shared) {
      parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) { kernels.backward_shared(pass, rows, begin, end); });
    } else {
      parallel_for(0, rows, grain(pass.columns),
                   [&](int64_t begin, int64_t end) { kernels.backward(pass, begin, end); });
    }
  });
  return {by_x, partial.is_same(by_parameters) ? by_parameters : partial.sum(0)};
}

template <class Signature>
auto kernel(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}
const auto& forward_kernel() {
  static const auto found = kernel<ForwardOp>("diffeo::rq_spline");
  return found;
}
const auto& backward_kernel() {
  static const auto found = kernel<BackwardOp>("diffeo::rq_spline_backward");
  return found;
}

struct RqSpline : torch::autograd::Function<RqSpline> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& parameters,
                               const std::vector<double>& shape, bool inverse) {
    at::AutoDispatchBelowADInplaceOrView below;
    auto [value, log_det] = forward_kernel().call(x, parameters, shape, inverse);
    ctx->save_for_backward(inverse ? variable_list{x, parameters, value} : variable_list{x, parameters});
    ctx->saved_data["shape"] = shape;
    ctx->saved_data["inverse"] = inverse;
    return {value, log_det};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const auto &x = saved[0], &parameters = saved[1];
    const auto shape = ctx->saved_data["shape"].toDoubleVector();
    const bool inverse = ctx->saved_data["inverse"].toBool();
    if (at::GradMode::is_enabled()) return {by_reference(x, parameters, grads, shape, inverse)};
    const auto [by_x, by_parameters] =
        gradients(x, parameters, inverse ? saved[2] : Tensor(), grads[0], grads[1], shape_from(shape), inverse);
    return {by_x, by_parameters, {}, {}};
  }

  /// Gradients that can be differentiated themselves.
  static variable_list by_reference(const Tensor& x, const Tensor& parameters, const variable_list& grads,
                                    const std::vector<double>& shape, bool inverse) {
    const auto [value, log_det] = reference(x, parameters, shape_from(shape), inverse);
    variable_list wanted, result(4);
    if (x.requires_grad()) wanted.push_back(x);
    if (parameters.requires_grad()) wanted.push_back(parameters);
    const auto found = torch::autograd::grad({value, log_det}, wanted, grads, true, true, true);
    size_t next = 0;
    if (x.requires_grad()) result[0] = found[next++];
    if (parameters.requires_grad()) result[1] = found[next];
    return result;
  }
};

/// Bin sizes from raw parameters (..., K): positive, and their sum is `length`.
Tensor sizes_of(const Tensor& raw, double temperature, double least, double length) {
  const auto bins = static_cast<double>(raw.size(-1));
  return length * least + length * (1 - least * bins) * (raw / temperature).softmax(-1);
}

/// The K + 1 knots, the last one exactly at the upper end.
Tensor knots_of(const Tensor& sizes, double lower, double upper) {
  const auto inner = lower + sizes.cumsum(-1).narrow(-1, 0, sizes.size(-1) - 1);
  const auto end = at::full_like(sizes.narrow(-1, 0, 1), lower);
  return at::cat({end, inner, at::full_like(end, upper)}, -1);
}

/// The K + 1 slopes at the knots.
Tensor slopes_of(const Tensor& raw, const Shape& shape) {
  // Beyond its threshold LibTorch's softplus is the identity, which e^-40 is below every dtype's rounding to do.
  const auto slopes = shape.min_slope + at::softplus(raw, 1, 40);
  if (shape.tails == Tails::none) return slopes;
  if (shape.tails == Tails::circular) return at::cat({slopes, slopes.narrow(-1, 0, 1)}, -1);
  auto ends = slopes.sizes().vec();
  ends.back() = 1;
  const auto one = at::ones(ends, slopes.options());
  return at::cat({one, slopes, one}, -1);
}

/// The point of [lower, upper] that x stands for; see `within` in rq_spline_kernel.h.
Tensor within(const Tensor& x, double lower, double upper, Tails tails) {
  if (tails == Tails::linear) return x.clamp(lower, upper);
  const double turn = upper - lower;
  const auto nearest = tails == Tails::none
                           ? x.clamp(lower, upper)
                           : (x - turn * ((x - (lower + upper) / 2) / turn).round()).clamp(lower, upper);
  // Inside, x itself; outside, its gradient goes on as it is.
  const auto outside = (x < lower).logical_or(x > upper);
  return at::where(outside, x + (nearest - x).detach(), x);
}

Tensor pick(const Tensor& values, const Tensor& bin) { return values.gather(-1, bin).squeeze(-1); }

}  // namespace

int64_t Shape::parameters() const { return 3 * bins + (tails == Tails::linear ? -1 : tails == Tails::none ? 1 : 0); }

std::tuple<Tensor, Tensor> reference(const Tensor& x, const Tensor& parameters, const Shape& shape, bool inverse) {
  const auto K = shape.bins;
  auto full = x.sizes().vec();
  full.push_back(parameters.size(-1));
  const auto raw = parameters.expand(full);
  const double width = shape.x_upper - shape.x_lower, height = shape.y_upper - shape.y_lower;
  const auto slopes = slopes_of(raw.narrow(-1, 2 * K, raw.size(-1) - 2 * K), shape);
  const auto x_knots =
      knots_of(sizes_of(raw.narrow(-1, 0, K), shape.temperature, shape.min_width, width), shape.x_lower, shape.x_upper);
  const auto y_knots = knots_of(sizes_of(raw.narrow(-1, K, K), shape.temperature, shape.min_height, height),
                                shape.y_lower, shape.y_upper);

  const double lower = inverse ? shape.y_lower : shape.x_lower, upper = inverse ? shape.y_upper : shape.x_upper;
  const auto point = within(x, lower, upper, shape.tails);
  const auto inner = (inverse ? y_knots : x_knots).narrow(-1, 1, K - 1);
  const auto bin = (point.unsqueeze(-1) >= inner.detach()).sum(-1, true);

  // The formulas, and why nothing in them cancels, are in rq_spline_kernel.h.
  const double tiny = x.scalar_type() == at::kDouble ? 0x1p-50 : 0x1p-21;
  const auto x0 = pick(x_knots, bin), y0 = pick(y_knots, bin);
  const auto x1 = at::maximum(pick(x_knots, bin + 1), x0 + tiny * std::max(-shape.x_lower, shape.x_upper));
  const auto y1 = at::maximum(pick(y_knots, bin + 1), y0 + tiny * std::max(-shape.y_lower, shape.y_upper));
  const auto w = x1 - x0, h = y1 - y0;
  const auto d0 = pick(slopes, bin), d1 = pick(slopes, bin + 1), s = h / w;
  auto value = point;
  if (inverse) {
    const auto r = ((point - y0) / h).clamp(0, 1), r_rest = ((y1 - point) / h).clamp(0, 1);
    const auto q = d0 * r_rest - d1 * r, a = 2 * s * r, b = 2 * s * r_rest;
    const auto m = q.abs() + (q.square() + a * b).sqrt();
    const auto rising = q >= 0;
    const auto per = w / (m + at::where(rising, a, b));
    const auto from_lower = at::where(rising, a, m) * per, from_upper = at::where(rising, m, b) * per;
    value = at::where(from_lower <= from_upper, x0 + from_lower, x1 - from_upper).clamp(shape.x_lower, shape.x_upper);
  }
  const auto& x_here = inverse ? value : point;
  const auto t = ((x_here - x0) / w).clamp(0, 1), rest = ((x1 - x_here) / w).clamp(0, 1), u = t * rest;
  const auto n = s * t.square() + d0 * u, n_rest = s * rest.square() + d1 * u, per_d = 1 / (n + n_rest);
  const auto m = d1 * t.square() + 2 * s * u + d0 * rest.square();
  if (!inverse)
    value = at::where(t <= rest, y0 + h * per_d * n, y1 - h * per_d * n_rest).clamp(shape.y_lower, shape.y_upper);
  auto log_slope = ((s * per_d).square() * m).log();
  if (inverse) log_slope = -log_slope;
  if (shape.tails == Tails::linear) {
    const auto outside = (x < lower).logical_or(x > upper);
    value = at::where(outside, x, value);
    log_slope = at::where(outside, at::zeros_like(log_slope), log_slope);
  }
  return {value, log_slope.sum(-1)};
}

bool has_kernel(const Tensor& x) {
  return (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble) &&
         forward_kernel().hasKernelForDispatchKey(c10::legacyExtractDispatchKey(x.key_set()));
}

std::tuple<Tensor, Tensor> gradients(const Tensor& x, const Tensor& parameters, const Tensor& value,
                                     const Tensor& by_value, const Tensor& by_log_det, const Shape& shape,
                                     bool inverse) {
  const at::AutoDispatchBelowADInplaceOrView below;
  return backward_kernel().call(inverse ? value : x, parameters, by_value, by_log_det, numbers_of(shape), inverse);
}

std::tuple<Tensor, Tensor> apply(const Tensor& x, const Tensor& parameters, const Shape& shape, bool inverse) {
  const bool shared = is_shared(x, parameters);
  auto full = x.sizes().vec();
  full.push_back(parameters.size(-1));
  const auto raw = shared || parameters.sizes() == full ? parameters : parameters.expand(full);
  if (!has_kernel(x)) return reference(x, raw, shape, inverse);
  if (!at::GradMode::is_enabled()) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return forward_kernel().call(x, raw, numbers_of(shape), inverse);
  }
  auto out = RqSpline::apply(x, raw, numbers_of(shape), inverse);
  return {out[0], out[1]};
}

TORCH_LIBRARY_IMPL(diffeo, CPU, ops) {
  ops.impl("rq_spline", forward_cpu);
  ops.impl("rq_spline_backward", backward_cpu);
}

}  // namespace diffeo::rq_spline
