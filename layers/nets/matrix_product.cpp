#include "diffeo/layers/nets/matrix_product.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "diffeo/layers/base/gradient_place.h"
#include "diffeo/layers/nets/products.h"

namespace diffeo {
namespace {

using at::Tensor;
using products::Matrix;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Without gaps between its rows or its columns, as oneDNN wants it.
Tensor dense(const Tensor& m) {
  const bool by_rows = m.stride(1) == 1 && m.stride(0) == m.size(1);
  const bool by_columns = m.stride(0) == 1 && m.stride(1) == m.size(0);
  return by_rows || by_columns ? m : m.contiguous();
}

template <class T>
Matrix<const T> matrix(const Tensor& m) {
  return {m.const_data_ptr<T>(), m.size(0), m.size(1), m.stride(0), m.stride(1)};
}

template <class T>
void multiply(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& c) {
  products::multiply(matrix<T>(a), matrix<T>(b), {c.mutable_data_ptr<T>(), c.size(0), c.size(1)},
                     {.bias = bias.defined() ? bias.const_data_ptr<T>() : nullptr});
}

/// a b + bias into c, without a graph.
void multiply_into(const Tensor& a, const Tensor& b, const Tensor& bias, Tensor c) {
  if (c.is_cpu() && c.scalar_type() == at::kFloat) return multiply<float>(dense(a), dense(b), bias, c);
  if (c.is_cpu() && c.scalar_type() == at::kDouble) return multiply<double>(dense(a), dense(b), bias, c);
  if (bias.defined())
    at::addmm_out(c, bias, a, b);
  else
    at::mm_out(c, a, b);
}

struct ProductNode : torch::autograd::Function<ProductNode> {
  static Tensor forward(AutogradContext* ctx, const Tensor& a, const Tensor& b, const std::optional<Tensor>& given_bias,
                        bool transpose_a, bool transpose_b) {
    ctx->save_for_backward({a, b});
    ctx->saved_data["transpose_a"] = transpose_a;
    ctx->saved_data["transpose_b"] = transpose_b;
    ctx->saved_data["has_bias"] = given_bias.has_value();
    const auto left = transpose_a ? a.t() : a, right = transpose_b ? b.t() : b;
    const auto bias = given_bias.value_or(Tensor());
    const auto c = at::empty({left.size(0), right.size(1)}, a.options());
    multiply_into(left, right, bias.defined() ? bias.contiguous() : bias, c);
    return c;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const auto &a = saved[0], &b = saved[1], &by_c = grads[0];
    const bool ta = ctx->saved_data["transpose_a"].toBool(), tb = ctx->saved_data["transpose_b"].toBool();
    Tensor by_a, by_b, by_bias;
    if (ctx->needs_input_grad(0)) by_a = ta ? product(b, by_c, tb, true, a) : product(by_c, b, false, !tb, a);
    if (ctx->needs_input_grad(1)) by_b = tb ? product(by_c, a, true, ta, b) : product(a, by_c, !ta, false, b);
    if (ctx->saved_data["has_bias"].toBool() && ctx->needs_input_grad(2)) by_bias = by_c.sum(0);
    return {by_a, by_b, by_bias, {}, {}};
  }

 private:
  /// The derivative by `factor`, at its place in the optimiser if nobody will differentiate it again.
  static Tensor product(const Tensor& a, const Tensor& b, bool ta, bool tb, const Tensor& factor) {
    if (at::GradMode::is_enabled()) return matrix_product(a, b, ta, tb);
    if (!factor.is_contiguous()) return matrix_product(a, b, ta, tb);
    const auto c = gradient_for(factor);
    multiply_into(ta ? a.t() : a, tb ? b.t() : b, {}, c);
    return c;
  }
};

}  // namespace

Tensor matrix_product(const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b, const Tensor& bias) {
  return ProductNode::apply(a, b, bias.defined() ? std::optional<Tensor>(bias) : std::nullopt, transpose_a,
                            transpose_b);
}

}  // namespace diffeo
