#include "diffeo/layers/affine/affine_op.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/log.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "diffeo/layers/affine/affine_cpu.h"
#include "diffeo/layers/affine/affine_schema.h"
#include "diffeo/layers/base/cpu_kernels.h"
#include "diffeo/layers/base/graph_gradients.h"
#include "diffeo/layers/base/parallel.h"

TORCH_LIBRARY_FRAGMENT(diffeo, ops) {
  ops.def("affine(Tensor x, Tensor parameters, int scale, float cap, bool inverse) -> (Tensor value, Tensor log_det)");
  ops.def(
      "affine_backward(Tensor x, Tensor parameters, Tensor by_value, Tensor by_log_det, int scale, float cap, "
      "bool inverse) -> (Tensor by_x, Tensor by_parameters)");
}

namespace diffeo::affine {

DIFFEO_CPU_KERNELS(CpuKernels)

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Rows for one thread at least: about 30 microseconds of work.
int64_t grain(int64_t columns) { return std::max<int64_t>(1, 32768 / columns); }

Pair forward_cpu(const Tensor& x, const Tensor& parameters, int64_t scale, double cap, bool inverse) {
  const auto xc = x.contiguous(), pc = parameters.contiguous();
  auto value = at::empty_like(xc), log_det = at::empty(x.sizes().slice(0, x.dim() - 1), x.options());
  if (x.numel() == 0) return {value, log_det.zero_()};
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "diffeo::affine", [&] {
    Pass<scalar_t> pass{.form = {static_cast<Scale>(scale), cap},
                        .inverse = inverse,
                        .shared = is_shared(x, parameters),
                        .columns = x.size(-1)};
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
                  int64_t scale, double cap, bool inverse) {
  const auto xc = x.contiguous(), pc = parameters.contiguous(), gv = by_value.contiguous(),
             gl = by_log_det.contiguous();
  auto by_x = at::empty_like(xc), by_parameters = at::empty_like(pc);
  if (x.numel() == 0) return {by_x, by_parameters.zero_()};
  const bool shared = is_shared(x, parameters);
  const int64_t rows = gl.numel(), blocks = (rows + rows_of_shared_block - 1) / rows_of_shared_block;
  // Always the same blocks, however many threads: the sum over the batch does not depend on them.
  auto partial = shared && blocks > 1 ? at::empty({blocks, pc.size(0), pc.size(1)}, pc.options()) : by_parameters;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "diffeo::affine_backward", [&] {
    Pass<scalar_t> pass{
        .form = {static_cast<Scale>(scale), cap}, .inverse = inverse, .shared = shared, .columns = x.size(-1)};
    pass.x = xc.const_data_ptr<scalar_t>();
    pass.parameters = pc.const_data_ptr<scalar_t>();
    pass.by_value = gv.const_data_ptr<scalar_t>();
    pass.by_log_det = gl.const_data_ptr<scalar_t>();
    pass.by_x = by_x.mutable_data_ptr<scalar_t>();
    pass.by_parameters = partial.mutable_data_ptr<scalar_t>();
    const auto& kernels = cpu_kernels<scalar_t>();
    if (shared) {
      const int64_t least = std::max<int64_t>(1, grain(pass.columns) / rows_of_shared_block);
      parallel_for(0, blocks, least,
                   [&](int64_t begin, int64_t end) { kernels.backward_shared(pass, rows, begin, end); });
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
  static const auto found = kernel<ForwardOp>("diffeo::affine");
  return found;
}
const auto& backward_kernel() {
  static const auto found = kernel<BackwardOp>("diffeo::affine_backward");
  return found;
}

struct AffineNode : torch::autograd::Function<AffineNode> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& parameters, int64_t scale,
                               double cap, bool inverse) {
    at::AutoDispatchBelowADInplaceOrView below;
    auto [value, log_det] = forward_kernel().call(x, parameters, scale, cap, inverse);
    ctx->save_for_backward(inverse ? variable_list{x, parameters, value} : variable_list{x, parameters});
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["cap"] = cap;
    ctx->saved_data["inverse"] = inverse;
    return {value, log_det};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const auto &x = saved[0], &parameters = saved[1];
    const auto scale = ctx->saved_data["scale"].toInt();
    const auto cap = ctx->saved_data["cap"].toDouble();
    const bool inverse = ctx->saved_data["inverse"].toBool();
    if (at::GradMode::is_enabled()) {
      const auto [value, log_det] = reference(x, parameters, {static_cast<Scale>(scale), cap}, inverse);
      const auto found = graph_gradients({value, log_det}, grads, {x, parameters});
      return {found[0], found[1], {}, {}, {}};
    }
    const auto [by_x, by_parameters] = gradients(x, parameters, inverse ? saved[2] : Tensor(), grads[0], grads[1],
                                                 {static_cast<Scale>(scale), cap}, inverse);
    return {by_x, by_parameters, {}, {}, {}};
  }
};

}  // namespace

Tensor log_scale(const Tensor& a, const Form& form) {
  switch (form.scale) {
    case Scale::bounded:
      return a / (1 + (a / form.cap).abs());
    case Scale::exp:
      return a;
    case Scale::sigmoid:
      return at::log(at::sigmoid(a + 2) + least_scale);
    // Beyond its threshold LibTorch's softplus is the identity, which e^-40 is below every dtype's rounding to do.
    case Scale::softplus:
      return at::log(at::softplus(a, 1, 40) + least_scale);
  }
  return {};
}

std::tuple<Tensor, Tensor> reference(const Tensor& x, const Tensor& parameters, const Form& form, bool inverse) {
  const auto s = log_scale(parameters.select(-1, 0), form), t = parameters.select(-1, 1);
  const double largest = x.scalar_type() == at::kDouble ? 708 : 87;
  const auto signed_s = inverse ? -s : s, factor = signed_s.clamp(-largest, largest).exp();
  return {inverse ? (x - t) * factor : x * factor + t, signed_s.sum(-1).expand(x.sizes().slice(0, x.dim() - 1))};
}

bool has_kernel(const Tensor& x) {
  return (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble) &&
         forward_kernel().hasKernelForDispatchKey(c10::legacyExtractDispatchKey(x.key_set()));
}

std::tuple<Tensor, Tensor> gradients(const Tensor& x, const Tensor& parameters, const Tensor& value,
                                     const Tensor& by_value, const Tensor& by_log_det, const Form& form, bool inverse) {
  const at::AutoDispatchBelowADInplaceOrView below;
  return backward_kernel().call(inverse ? value : x, parameters, by_value, by_log_det, static_cast<int64_t>(form.scale),
                                form.cap, inverse);
}

std::tuple<Tensor, Tensor> apply(const Tensor& x, const Tensor& parameters, const Form& form, bool inverse) {
  auto full = x.sizes().vec();
  full.push_back(2);
  const auto given = is_shared(x, parameters) ? parameters : parameters.expand(full);
  if (!has_kernel(x)) return reference(x, given, form, inverse);
  if (!at::GradMode::is_enabled()) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return forward_kernel().call(x, given, static_cast<int64_t>(form.scale), form.cap, inverse);
  }
  auto out = AffineNode::apply(x, given, static_cast<int64_t>(form.scale), form.cap, inverse);
  return {out[0], out[1]};
}

TORCH_LIBRARY_IMPL(diffeo, CPU, ops) {
  ops.impl("affine", forward_cpu);
  ops.impl("affine_backward", backward_cpu);
}

}  // namespace diffeo::affine
