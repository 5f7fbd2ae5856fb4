#include "diffeo/layers/linear/lu_op.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sigmoid.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "diffeo/layers/base/graph_gradients.h"
#include "diffeo/layers/linear/positive_diagonal.h"

// With D features and far more points, the matrices are tiny beside the batch, and what they cost is the number of
// operations on them, not the arithmetic. So the triangles are taken apart and put together in one step each.
namespace diffeo::lu {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Factors {
  Tensor lower;    ///< L, (D, D)
  Tensor upper;    ///< U P
  Tensor log_det;  ///< scalar
};

bool in_memory(const Tensor& lu) {
  return lu.is_cpu() && (lu.scalar_type() == at::kFloat || lu.scalar_type() == at::kDouble);
}

const int64_t* numbers_of(const Tensor& order) { return order.defined() ? order.const_data_ptr<int64_t>() : nullptr; }

double diagonal_of(double raw) { return std::max(raw, 0.0) + std::log1p(std::exp(-std::abs(raw))) + least_diagonal; }
double diagonal_slope_of(double raw) { return 1 / (1 + std::exp(-raw)); }

Factors factors_of(const Tensor& lu, const Tensor& inverse_order) {
  if (!in_memory(lu)) {
    const PositiveUpper upper(lu);
    return {lu.tril(-1) + at::eye(lu.size(0), lu.options()),
            inverse_order.defined() ? upper.matrix.index_select(1, inverse_order) : upper.matrix, upper.log_det};
  }
  const auto packed = lu.contiguous();
  Factors factors{at::empty_like(packed), at::empty_like(packed), at::empty({}, lu.options())};
  const int64_t D = lu.size(0), *order = numbers_of(inverse_order);
  AT_DISPATCH_FLOATING_TYPES(lu.scalar_type(), "diffeo::lu::factors_of", [&] {
    auto *lower = factors.lower.mutable_data_ptr<scalar_t>(), *upper = factors.upper.mutable_data_ptr<scalar_t>();
    const auto* raw = packed.const_data_ptr<scalar_t>();
    double log_det = 0;
    for (int64_t i = 0; i < D; ++i, lower += D, upper += D, raw += D) {
      const double diagonal = diagonal_of(static_cast<double>(raw[i]));
      log_det += std::log(diagonal);
      for (int64_t j = 0; j < D; ++j) {
        const int64_t column = order != nullptr ? order[j] : j;
        lower[j] = j < i ? raw[j] : static_cast<scalar_t>(j == i);
        upper[j] = column > i ? raw[column] : column == i ? static_cast<scalar_t>(diagonal) : scalar_t(0);
      }
    }
    *factors.log_det.mutable_data_ptr<scalar_t>() = static_cast<scalar_t>(log_det);
  });
  return factors;
}

/// The derivative by `lu` from those by L, by U P, and by log_det (scalar).
Tensor by_packed(const Tensor& lu, const Tensor& inverse_order, const Tensor& by_lower, const Tensor& by_upper,
                 const Tensor& by_log_det) {
  if (!in_memory(lu)) {
    const auto by_columns =
        inverse_order.defined() ? at::empty_like(by_upper).index_copy_(1, inverse_order, by_upper) : by_upper;
    const auto raw = lu.diagonal(), diagonal = at::softplus(raw) + least_diagonal;
    const auto by_diagonal = (by_columns.diagonal() + by_log_det / diagonal) * at::sigmoid(raw);
    return by_lower.tril(-1) + by_columns.triu(1) + at::diag_embed(by_diagonal);
  }
  const auto packed = lu.contiguous(), lower_rows = by_lower.contiguous(), upper_rows = by_upper.contiguous();
  auto by_lu = at::empty_like(packed);
  const int64_t D = lu.size(0), *order = numbers_of(inverse_order);
  AT_DISPATCH_FLOATING_TYPES(lu.scalar_type(), "diffeo::lu::by_packed", [&] {
    const auto *lower = lower_rows.const_data_ptr<scalar_t>(), *upper = upper_rows.const_data_ptr<scalar_t>(),
               *raw = packed.const_data_ptr<scalar_t>();
    const auto total = static_cast<double>(*by_log_det.const_data_ptr<scalar_t>());
    auto* to = by_lu.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < D; ++i, lower += D, upper += D, raw += D, to += D) {
      for (int64_t j = 0; j < i; ++j) to[j] = lower[j];
      for (int64_t j = 0; j < D; ++j) {
        const int64_t column = order != nullptr ? order[j] : j;
        if (column >= i) to[column] = upper[j];
      }
      const auto diagonal = static_cast<double>(raw[i]);
      to[i] = static_cast<scalar_t>((static_cast<double>(to[i]) + total / diagonal_of(diagonal)) *
                                    diagonal_slope_of(diagonal));
    }
  });
  return by_lu;
}

struct LuNode : torch::autograd::Function<LuNode> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& lu,
                               const std::optional<Tensor>& given_bias, const std::optional<Tensor>& given_order,
                               bool inverse) {
    const auto bias = given_bias.value_or(Tensor()), inverse_order = given_order.value_or(Tensor());
    at::AutoDispatchBelowADInplaceOrView below;
    const auto batch = x.sizes().slice(0, x.dim() - 1);
    ctx->saved_data["inverse"] = inverse;
    if (!inverse) {
      const auto factors = factors_of(lu, inverse_order);
      // One product of small matrices, so that the batch meets only one.
      const auto weight = factors.lower.mm(factors.upper);
      ctx->save_for_backward({x, lu, bias, inverse_order, factors.lower, factors.upper, weight});
      return {at::linear(x, weight, bias), factors.log_det.expand(batch)};
    }
    const auto factors = factors_of(lu, {});
    const auto rows = (bias.defined() ? x - bias : x).reshape({-1, lu.size(0)});
    auto solved = at::linalg_solve_triangular(factors.lower, rows.t(), false, true, /*unitriangular=*/true);
    solved = at::linalg_solve_triangular(factors.upper, solved, true).t();  // P x, (rows, D)
    ctx->save_for_backward({x, lu, bias, inverse_order, factors.lower, factors.upper, solved});
    const auto value = inverse_order.defined() ? solved.index_select(1, inverse_order) : solved.clone();
    return {value.view(x.sizes()), factors.log_det.neg().expand(batch)};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const auto &x = saved[0], &lu = saved[1], &bias = saved[2], &inverse_order = saved[3], &lower = saved[4],
               &upper = saved[5];
    const bool inverse = ctx->saved_data["inverse"].toBool();
    if (at::GradMode::is_enabled()) {
      const auto [value, log_det] = reference(x, lu, bias, inverse_order, inverse);
      const auto found = graph_gradients({value, log_det}, grads, {x, lu, bias});
      return {found[0], found[1], found[2], {}, {}};
    }
    const auto by_value = grads[0].reshape({-1, lu.size(0)});
    Tensor by_x, by_bias, by_weight, by_log_det = grads[1].sum();
    if (inverse) {
      const auto& solved = saved[6];
      const auto in_order =
          inverse_order.defined() ? at::empty_like(by_value).index_copy_(1, inverse_order, by_value) : by_value;
      // (L U)^T h = the derivative by P x; then by y it is h, and by L U it is -h (P x)^T.
      auto h = at::linalg_solve_triangular(upper.t(), in_order.t(), /*upper=*/false);
      h = at::linalg_solve_triangular(lower.t(), h, /*upper=*/true, true, /*unitriangular=*/true);
      by_x = h.t();
      by_weight = h.mm(solved).neg_();
      if (bias.defined()) by_bias = h.sum(1).neg_();
      by_log_det.neg_();
    } else {
      if (ctx->needs_input_grad(0)) by_x = by_value.mm(saved[6]);
      by_weight = by_value.t().mm(x.reshape({-1, lu.size(0)}));
      if (bias.defined()) by_bias = by_value.sum(0);
    }
    // Of the inverse, `upper` is U itself.
    const auto by_lu =
        by_packed(lu, inverse ? Tensor() : inverse_order, by_weight.mm(upper.t()), lower.t().mm(by_weight), by_log_det);
    return {by_x.defined() ? by_x.reshape(x.sizes()) : by_x, by_lu, by_bias, {}, {}};
  }
};

}  // namespace

std::tuple<Tensor, Tensor> reference(const Tensor& x, const Tensor& lu, const Tensor& bias, const Tensor& inverse_order,
                                     bool inverse) {
  const PositiveUpper upper(lu);
  const auto batch = x.sizes().slice(0, x.dim() - 1);
  if (!inverse) {
    auto weight = at::addmm(upper.matrix, lu.tril(-1), upper.matrix);  // (L + 1) U
    // The columns are put in order, not the points.
    if (inverse_order.defined()) weight = weight.index_select(1, inverse_order);
    return {at::linear(x, weight, bias), upper.log_det.expand(batch)};
  }
  const auto rows = (bias.defined() ? x - bias : x).reshape({-1, lu.size(0)});
  // The solver reads only the triangle that it is told of.
  auto solved = at::linalg_solve_triangular(lu, rows.t(), /*upper=*/false, /*left=*/true, /*unitriangular=*/true);
  solved = at::linalg_solve_triangular(upper.matrix, solved, /*upper=*/true).t();
  if (inverse_order.defined()) solved = solved.index_select(1, inverse_order);
  return {solved.reshape(x.sizes()), -upper.log_det.expand(batch)};
}

std::tuple<Tensor, Tensor> apply(const Tensor& x, const Tensor& lu, const Tensor& bias, const Tensor& inverse_order,
                                 bool inverse) {
  // Only an optional argument may be undefined.
  auto out = LuNode::apply(x, lu, std::optional<Tensor>(bias), std::optional<Tensor>(inverse_order), inverse);
  return {out[0], out[1]};
}

}  // namespace diffeo::lu
