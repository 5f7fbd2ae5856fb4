#include "diffeo/layers/nets/dense.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sigmoid.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "diffeo/layers/base/cpu_capability.h"
#include "diffeo/layers/base/gradient_place.h"
#include "diffeo/layers/nets/activation.h"
#include "diffeo/layers/nets/dense_kernels.h"
#include "diffeo/layers/nets/products.h"

namespace diffeo::dense {

namespace baseline {
const CpuKernels<float>& kernels(float);
const CpuKernels<double>& kernels(double);
}  // namespace baseline
#ifdef __x86_64__
namespace avx2 {
const CpuKernels<float>& kernels(float);
const CpuKernels<double>& kernels(double);
}  // namespace avx2
namespace avx512 {
const CpuKernels<float>& kernels(float);
const CpuKernels<double>& kernels(double);
}  // namespace avx512
#endif

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <class T>
const CpuKernels<T>& cpu_kernels() {
#ifdef __x86_64__
  if (cpu_capability() == CpuCapability::avx512) return avx512::kernels(T());
  if (cpu_capability() == CpuCapability::avx2) return avx2::kernels(T());
#endif
  return baseline::kernels(T());
}

struct After {
  Tensor bias;
  bool add = false, relu = false;
};

/// into = a b, all of them matrices; `a` and `b` may be transposed views.
void multiply(const Tensor& a, const Tensor& b, const Tensor& into, const After& after = {}) {
  AT_DISPATCH_FLOATING_TYPES(into.scalar_type(), "diffeo::dense", [&] {
    const auto matrix = [](const Tensor& t) {
      return products::Matrix<const scalar_t>{t.const_data_ptr<scalar_t>(), t.size(0), t.size(1), t.stride(0),
                                              t.stride(1)};
    };
    products::multiply(matrix(a), matrix(b), {into.mutable_data_ptr<scalar_t>(), into.size(0), into.size(1)},
                       {.bias = after.bias.defined() ? after.bias.const_data_ptr<scalar_t>() : nullptr,
                        .add = after.add,
                        .relu = after.relu});
  });
}

/// x W^T + b.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, bool relu = false) {
  auto y = at::empty({x.size(0), weight.size(0)}, x.options());
  multiply(x, weight.t(), y, {.bias = bias, .relu = relu});
  return y;
}

/// Columns that one thread works on at least.
constexpr int64_t grain = 256;

/// Derivatives by what a rectifier took, in the place of `by_hidden` or added to `into`, and their sums over the rows.
void rectify(const Tensor& by_hidden, const Tensor& hidden, const Tensor& into, bool add, const Tensor& sums) {
  AT_DISPATCH_FLOATING_TYPES(by_hidden.scalar_type(), "diffeo::dense_backward", [&] {
    const Rectified<scalar_t> pass{.by_hidden = by_hidden.const_data_ptr<scalar_t>(),
                                   .hidden = hidden.defined() ? hidden.const_data_ptr<scalar_t>() : nullptr,
                                   .by_input = into.defined() ? into.mutable_data_ptr<scalar_t>() : nullptr,
                                   .sums = sums.mutable_data_ptr<scalar_t>(),
                                   .rows = by_hidden.size(0),
                                   .columns = by_hidden.size(1),
                                   .add = add};
    const auto& kernels = cpu_kernels<scalar_t>();
    at::parallel_for(0, pass.columns, grain, [&](int64_t begin, int64_t end) { kernels.rectified(pass, begin, end); });
  });
}

/// The hidden activations of one application, and the way there and back.
class Network {
 public:
  Network(const Shape& shape, at::TensorList parameters)
      : shape_(shape), relu_(shape.activation == "relu"), activation_(activation(shape.activation)) {
    for (const auto& parameter : parameters) parameters_.push_back(parameter.contiguous());
  }

  /// x (B, I), context (B, C); notes in `kept` what `backward` wants to know.
  Tensor forward(const Tensor& x, const Tensor& context, variable_list& kept) const {
    return shape_.residual ? residual_forward(x, context, kept) : mlp_forward(x, kept);
  }

  struct Gradients {
    Tensor by_x, by_context;
    variable_list by_parameters;
  };
  Gradients backward(const Tensor& x, const Tensor& context, const variable_list& kept, const Tensor& by_output,
                     bool want_x, bool want_context) const {
    Gradients gradients;
    gradients.by_parameters.resize(parameters_.size());
    if (shape_.residual)
      residual_backward(x, context, kept, by_output, want_x, want_context, gradients);
    else
      mlp_backward(x, kept, by_output, want_x, gradients);
    return gradients;
  }

 private:
  const Tensor& weight(size_t map) const { return parameters_[2 * map]; }
  const Tensor& bias(size_t map) const { return parameters_[2 * map + 1]; }

  /// act(x W^T + b); keeps what came before the activation, unless it is a rectifier, and what came out.
  Tensor hidden(const Tensor& x, size_t map, variable_list& kept) const {
    if (relu_) {
      kept.push_back(linear(x, weight(map), bias(map), true));
    } else {
      kept.push_back(linear(x, weight(map), bias(map)));
      kept.push_back(activation_.forward(kept.back()));
    }
    return kept.back();
  }

  Tensor mlp_forward(const Tensor& x, variable_list& kept) const {
    auto h = x;
    const auto depth = static_cast<size_t>(shape_.depth);
    for (size_t i = 0; i < depth; ++i) h = hidden(h, i, kept);
    return linear(h, weight(depth), bias(depth));
  }

  size_t maps_of_block() const { return shape_.gated ? 3 : 2; }

  Tensor residual_forward(const Tensor& x, const Tensor& context, variable_list& kept) const {
    auto h = linear(x, weight(0), bias(0));
    for (int64_t i = 0; i < shape_.depth; ++i) {
      const auto map = 1 + i * maps_of_block();
      if (!relu_) kept.push_back(h);
      kept.push_back(activation_.forward(h));
      const auto inner = hidden(kept.back(), map, kept);
      if (!relu_) h = h.clone();  // it is kept, and what follows is in place
      if (shape_.gated) {
        kept.push_back(linear(inner, weight(map + 1), bias(map + 1)));
        kept.push_back(linear(context, weight(map + 2), bias(map + 2)).sigmoid_());
        h.addcmul_(kept[kept.size() - 2], kept.back());
      } else {
        multiply(inner, weight(map + 1).t(), h, {.bias = bias(map + 1), .add = true});
      }
    }
    kept.push_back(h);
    return linear(h, weight(parameters_.size() / 2 - 1), bias(parameters_.size() / 2 - 1));
  }

  /// The gradient of a map's weight: by_output^T x.
  void by_weight(size_t map, const Tensor& by_output, const Tensor& x, Gradients& gradients) const {
    gradients.by_parameters[2 * map] = gradient_for(parameters_[2 * map]);
    multiply(by_output.t(), x, gradients.by_parameters[2 * map]);
  }
  /// A tensor for the gradient of a map's bias, to be filled.
  Tensor by_bias(size_t map, Gradients& gradients) const {
    return gradients.by_parameters[2 * map + 1] = gradient_for(parameters_[2 * map + 1]);
  }
  /// by_output W.
  Tensor by_input(size_t map, const Tensor& by_output) const {
    auto by_x = at::empty({by_output.size(0), weight(map).size(1)}, by_output.options());
    multiply(by_output, weight(map), by_x);
    return by_x;
  }
  /// Back through an activation; its sum over the rows is the gradient of the bias of `map`.
  Tensor by_preactivation(const Tensor& by_hidden, const Tensor& before, const Tensor& after, size_t map,
                          Gradients& gradients) const {
    if (relu_) {
      rectify(by_hidden, after, by_hidden, false, by_bias(map, gradients));
      return by_hidden;
    }
    auto by_before = activation_.backward(by_hidden, before, after);
    rectify(by_before, {}, {}, false, by_bias(map, gradients));
    return by_before;
  }

  void mlp_backward(const Tensor& x, const variable_list& kept, const Tensor& by_output, bool want_x,
                    Gradients& gradients) const {
    auto g = by_output;
    rectify(g, {}, {}, false, by_bias(shape_.depth, gradients));
    for (size_t i = shape_.depth; i > 0; --i) {
      const auto& after = kept[relu_ ? i - 1 : 2 * i - 1];
      by_weight(i, g, after, gradients);
      g = by_preactivation(by_input(i, g), relu_ ? Tensor() : kept[2 * i - 2], after, i - 1, gradients);
    }
    by_weight(0, g, x, gradients);
    if (want_x) gradients.by_x = by_input(0, g);
  }

  void residual_backward(const Tensor& x, const Tensor& context, const variable_list& kept, const Tensor& by_output,
                         bool want_x, bool want_context, Gradients& gradients) const {
    const auto last = parameters_.size() / 2 - 1;
    auto at = kept.size();
    const auto previous = [&] { return kept[--at]; };
    rectify(by_output, {}, {}, false, by_bias(last, gradients));
    by_weight(last, by_output, previous(), gradients);
    auto g = by_input(last, by_output);
    // The sum of g over the rows is the gradient of the bias of whatever map came before.
    if (shape_.depth == 0) rectify(g, {}, {}, false, by_bias(0, gradients));
    for (int64_t i = shape_.depth - 1; i >= 0; --i) {
      const auto map = 1 + i * maps_of_block();
      auto by_inner = g;
      if (shape_.gated) {
        const auto gate = previous(), outcome = previous();
        const auto by_gate = g * outcome * gate * (1 - gate);
        rectify(by_gate, {}, {}, false, by_bias(map + 2, gradients));
        by_weight(map + 2, by_gate, context, gradients);
        if (want_context) {
          auto by_context = by_input(map + 2, by_gate);
          gradients.by_context = gradients.by_context.defined() ? gradients.by_context + by_context : by_context;
        }
        by_inner = g * gate;
      }
      rectify(by_inner, {}, {}, false, by_bias(map + 1, gradients));
      const auto inner_after = previous(), inner_before = relu_ ? Tensor() : previous();
      by_weight(map + 1, by_inner, inner_after, gradients);
      const auto by_middle = by_preactivation(by_input(map + 1, by_inner), inner_before, inner_after, map, gradients);
      const auto after = previous(), before = relu_ ? Tensor() : previous();
      by_weight(map, by_middle, after, gradients);
      const auto by_after = by_input(map, by_middle);
      // The first map's bias gets the sums of the last one in the loop; those before it are overwritten.
      auto sums = i == 0 ? by_bias(0, gradients) : at::empty({g.size(1)}, g.options());
      if (relu_)
        rectify(by_after, after, g, true, sums);
      else
        rectify(activation_.backward(by_after, before, after), {}, g, true, sums);
    }
    by_weight(0, g, x, gradients);
    if (want_x) gradients.by_x = by_input(0, g);
  }

  const Shape& shape_;
  bool relu_;
  const Activation& activation_;
  std::vector<Tensor> parameters_;
};

Tensor as_rows(const Tensor& t) { return t.defined() ? t.reshape({-1, t.size(-1)}).contiguous() : t; }

class Dense : public torch::autograd::Function<Dense> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const std::optional<Tensor>& given_context,
                        at::TensorList parameters, const Shape& shape) {
    const auto context = given_context.value_or(Tensor());
    variable_list kept;
    auto output = Network(shape, parameters).forward(x, context, kept);
    ctx->saved_data["residual"] = shape.residual;
    ctx->saved_data["depth"] = shape.depth;
    ctx->saved_data["activation"] = shape.activation;
    ctx->saved_data["gated"] = shape.gated;
    ctx->saved_data["parameters"] = static_cast<int64_t>(parameters.size());
    variable_list saved{x, context};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    saved.insert(saved.end(), kept.begin(), kept.end());
    ctx->save_for_backward(saved);
    return output;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const Shape shape{ctx->saved_data["residual"].toBool(), ctx->saved_data["depth"].toInt(),
                      ctx->saved_data["activation"].toStringRef(), ctx->saved_data["gated"].toBool()};
    const auto count = ctx->saved_data["parameters"].toInt();
    const auto &x = saved[0], &context = saved[1];
    const variable_list parameters(saved.begin() + 2, saved.begin() + 2 + count),
        kept(saved.begin() + 2 + count, saved.end());
    if (at::GradMode::is_enabled()) return by_reference(shape, x, context, parameters, grads);
    const auto gradients = Network(shape, parameters)
                               .backward(x, context, kept, grads[0].contiguous(), ctx->needs_input_grad(0),
                                         context.defined() && ctx->needs_input_grad(1));
    variable_list result{gradients.by_x, gradients.by_context};
    result.insert(result.end(), gradients.by_parameters.begin(), gradients.by_parameters.end());
    result.emplace_back();
    return result;
  }

  /// Gradients that can be differentiated themselves.
  static variable_list by_reference(const Shape& shape, const Tensor& x, const Tensor& context,
                                    const variable_list& parameters, const variable_list& grads) {
    variable_list inputs{x, context}, wanted;
    inputs.insert(inputs.end(), parameters.begin(), parameters.end());
    for (const auto& input : inputs)
      if (input.defined() && input.requires_grad()) wanted.push_back(input);
    const auto found =
        torch::autograd::grad({reference(shape, x, context, parameters)}, wanted, grads, true, true, true);
    variable_list result;
    size_t next = 0;
    for (const auto& input : inputs)
      result.push_back(input.defined() && input.requires_grad() ? found[next++] : Tensor());
    result.emplace_back();
    return result;
  }
};

}  // namespace

bool fused(const Tensor& x) {
  return x.device().is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble);
}

Tensor reference(const Shape& shape, const Tensor& x, const Tensor& context, at::TensorList parameters) {
  const auto& act = activation(shape.activation).forward;
  size_t next = 0;
  const auto map = [&](const Tensor& h) {
    next += 2;
    return at::linear(h, parameters[next - 2], parameters[next - 1]);
  };
  auto h = shape.residual ? map(x) : x;
  for (int64_t i = 0; i < shape.depth; ++i) {
    if (!shape.residual) {
      h = act(map(h));
      continue;
    }
    auto inner = map(act(map(act(h))));
    if (shape.gated) inner = inner * at::sigmoid(map(context));
    h = h + inner;
  }
  return map(h);
}

Tensor apply(const Shape& shape, const Tensor& x, const Tensor& context, at::TensorList parameters) {
  if (!fused(x)) return reference(shape, x, context, parameters);
  auto sizes = x.sizes().vec();
  sizes.back() = parameters.back().size(0);
  return Dense::apply(as_rows(x), shape.gated ? std::optional(as_rows(context)) : std::nullopt, parameters, shape)
      .view(sizes);
}

}  // namespace diffeo::dense
