#include "diffeo/layers/base/score.h"

#include <ATen/ops/linalg_solve.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

namespace diffeo {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Solver : torch::CustomClassHolder {
  explicit Solver(std::function<Tensor(const Tensor&)> solve) : solve(std::move(solve)) {}
  std::function<Tensor(const Tensor&)> solve;
};

struct ImplicitPoint : torch::autograd::Function<ImplicitPoint> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor&,
                        const c10::intrusive_ptr<Solver>& solver) {
    ctx->saved_data["solver"] = c10::IValue::make_capsule(solver);
    return x.clone();
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    check(!at::GradMode::is_enabled(), "the inverse of this layer is differentiable once in this pass, not twice");
    const auto capsule = ctx->saved_data["solver"].toCapsule();
    return {{}, -static_cast<const Solver&>(*capsule).solve(grads[0]), {}};
  }
};

}  // namespace

Tensor pulled_back(const std::vector<Tensor>& outputs, const std::vector<Tensor>& by_outputs, const Tensor& input) {
  std::vector<Tensor> from, by;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].requires_grad()) continue;
    from.push_back(outputs[i]);
    by.push_back(by_outputs[i]);
  }
  if (from.empty()) return at::zeros_like(input.detach());
  const auto found = torch::autograd::grad(from, {input}, by, /*retain_graph=*/true, /*create_graph=*/false,
                                           /*allow_unused=*/true)[0];
  return found.defined() ? found : at::zeros_like(input.detach());
}

Tensor fresh_point(const Tensor& x) { return x.detach().requires_grad_(); }

Tensor as_variable(const Tensor& x) { return x.requires_grad() ? x : fresh_point(x); }

Tensor score_by_way_back(const std::function<Mapped(const Tensor& y)>& way_back, const Tensor& y, const Tensor& score) {
  const auto point = fresh_point(y);
  const auto [x, log_det] = way_back(point);
  return pulled_back({x, log_det}, {score, at::ones_like(log_det)}, point);
}

Tensor score_by_jacobian(const Tensor& x, const Mapped& mapped, const Tensor& score) {
  const auto& [value, log_det] = mapped;
  const auto batch = log_det.dim();
  const auto outputs = value.flatten(batch).unbind(-1);
  std::vector<Tensor> rows;
  for (const auto& output : outputs) rows.push_back(pulled_back({output}, {at::ones_like(output)}, x).flatten(batch));
  const auto rest = score - pulled_back({log_det}, {at::ones_like(log_det)}, x);
  const auto transposed = at::stack(rows, -1);  // (*batch, inputs, outputs)
  return at::linalg_solve(transposed, rest.flatten(batch).unsqueeze(-1)).squeeze(-1).view(value.sizes());
}

ScoredFeatures carry_features(const Univariate& map, const Tensor& x, const Tensor& parameters, const Tensor& score,
                              Direction direction, bool want_parameters) {
  const auto mapped = direction == Direction::forward ? map.forward(x, parameters) : map.inverse(x, parameters);
  const auto& [value, log_det] = mapped;
  const auto one = at::ones_like(value), one_each = at::ones_like(log_det);
  const auto promises = map.traits();
  const bool forward = direction == Direction::forward;
  if (want_parameters && (forward ? promises.closed_inverse : promises.closed_forward)) {
    // The way back of the map alone, a formula, gives all in one product: log q(y) = log p(x(y)) + log|dx/dy|.
    const auto point = fresh_point(value), fixed = fresh_point(parameters);
    const auto back = forward ? map.inverse(point, fixed) : map.forward(point, fixed);
    std::vector<Tensor> from{back.value}, by{score};
    if (back.log_det.requires_grad()) {
      from.push_back(back.log_det);
      by.push_back(one_each);
    }
    const auto found = torch::autograd::grad(from, {point, fixed}, by, false, false, true);
    return {mapped, found[0], found[1].defined() ? -found[1] : at::zeros_like(fixed.detach())};
  }
  const auto slope = pulled_back({value}, {one}, x);
  const auto carried = (score - pulled_back({log_det}, {one_each}, x)) / slope;
  if (!want_parameters) return {mapped, carried, {}};
  return {mapped, carried, pulled_back({value, log_det}, {carried, one_each}, parameters)};
}

Tensor implicit_point(const Tensor& x, const Tensor& residual, std::function<Tensor(const Tensor& v)> solve) {
  return ImplicitPoint::apply(x.detach(), residual, c10::make_intrusive<Solver>(std::move(solve)));
}

}  // namespace diffeo
