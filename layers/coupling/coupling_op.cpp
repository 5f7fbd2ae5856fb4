#include "diffeo/layers/coupling/coupling_op.h"

#include <ATen/ops/cat.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "diffeo/layers/base/graph_gradients.h"
#include "diffeo/layers/coupling/features.h"

namespace diffeo::coupling {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor joined(const Tensor& kept, const Tensor& context) {
  return context.defined() ? at::cat({kept, context}, -1) : kept;
}

Tensor gates_of(const dense::Shape& shape, const Tensor& context) { return shape.gated ? context : Tensor(); }

/// What a node remembers besides tensors.
struct Remembered : torch::CustomClassHolder {
  struct What {
    PlanPtr plan;
    dense::Shape shape;
    int64_t parameters;
    bool inverse;
  };
  explicit Remembered(const What& given) : what(given) {}
  What what;
};

struct Node : torch::autograd::Function<Node> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const std::optional<Tensor>& given_context,
                               const std::optional<Tensor>& given_kept, at::TensorList parameters,
                               const Remembered::What& what) {
    const auto& [plan, shape, count, inverse] = what;
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto context = given_context.value_or(Tensor()), kept_parameters = given_kept.value_or(Tensor());
    const auto [x_kept, x_moved] = take_apart(x, plan->kept, plan->moved);
    Mapped kept{x_kept, {}};
    if (plan->kept_map)
      kept =
          inverse ? plan->kept_map->inverse(x_kept, kept_parameters) : plan->kept_map->forward(x_kept, kept_parameters);
    // The network reads the kept features of the side where forward begins.
    const auto input = joined(inverse ? kept.value : x_kept, context);
    const auto passed = dense::forward(shape, input, gates_of(shape, context), parameters);
    const auto made = passed.output.unflatten(-1, {plan->moved.size(0), plan->map->parameters()});
    const auto moved = inverse ? plan->map->inverse(x_moved, made) : plan->map->forward(x_moved, made);

    ctx->saved_data["remembered"] = c10::IValue::make_capsule(c10::make_intrusive<Remembered>(what));
    variable_list saved{x, context, kept_parameters, input, made, x_moved};
    saved.push_back(inverse ? moved.value : Tensor());
    saved.push_back(plan->kept_map ? x_kept : Tensor());
    saved.push_back(plan->kept_map && inverse ? kept.value : Tensor());
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    saved.insert(saved.end(), passed.kept.begin(), passed.kept.end());
    ctx->save_for_backward(saved);
    return {put_together(kept.value, moved.value, plan->kept, plan->moved),
            kept.log_det.defined() ? kept.log_det + moved.log_det : moved.log_det};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const auto capsule = ctx->saved_data["remembered"].toCapsule();
    const auto& [plan, shape, count, inverse] = static_cast<const Remembered&>(*capsule).what;
    const auto &x = saved[0], &context = saved[1], &kept_parameters = saved[2], &input = saved[3], &made = saved[4],
               &x_moved = saved[5], &moved_value = saved[6], &x_kept = saved[7], &kept_value = saved[8];
    const variable_list parameters(saved.begin() + 9, saved.begin() + 9 + count);
    if (at::GradMode::is_enabled())
      return by_composed(*plan, shape, x, context, kept_parameters, parameters, inverse, grads);

    const at::AutoDispatchBelowADInplaceOrView below;
    const auto [by_kept, by_moved] = take_apart(grads[0], plan->kept, plan->moved);
    const auto by_map = plan->map->gradients(x_moved, made, moved_value, by_moved, grads[1], inverse);
    // Whoever asks for derivatives by points alone pays for no others. An argument that was not given has no number.
    const bool want_x = ctx->needs_input_grad(0), want_context = context.defined() && ctx->needs_input_grad(1),
               through_kept_map = inverse && plan->kept_map;  // the network read what the map of the kept ones made
    dense::Wanted wanted{.x = want_x || want_context || through_kept_map, .context = shape.gated && want_context};
    const auto first = static_cast<size_t>(1 + context.defined() + kept_parameters.defined());
    for (size_t i = 0; i < parameters.size(); ++i) wanted.parameters |= ctx->needs_input_grad(first + i);
    const auto by_net =
        dense::backward(shape, input, gates_of(shape, context), parameters, {saved.begin() + 9 + count, saved.end()},
                        by_map.by_parameters.flatten(-2), wanted);
    Tensor by_read, by_context = by_net.by_context;
    if (wanted.x) by_read = by_net.by_x.narrow(-1, 0, by_kept.size(-1));
    if (want_context) {
      const auto by_joined = by_net.by_x.narrow(-1, by_kept.size(-1), context.size(-1));
      by_context = by_context.defined() ? by_context + by_joined : by_joined.contiguous();
    }
    Tensor by_x_kept, by_kept_parameters;
    if (plan->kept_map) {
      const auto by_value = inverse ? by_kept + by_read : by_kept;
      const auto by = plan->kept_map->gradients(x_kept, kept_parameters, kept_value, by_value, grads[1], inverse);
      by_x_kept = inverse || !wanted.x ? by.by_points : by.by_points + by_read;
      by_kept_parameters = by.by_parameters;
    } else if (wanted.x) {
      by_x_kept = by_kept + by_read;
    }
    variable_list result{want_x ? put_together(by_x_kept, by_map.by_points, plan->kept, plan->moved) : Tensor(),
                         by_context, by_kept_parameters};
    result.insert(result.end(), by_net.by_parameters.begin(), by_net.by_parameters.end());
    result.resize(3 + parameters.size() + 1);  // what it remembers has none
    return result;
  }

  /// Gradients that can be differentiated themselves.
  static variable_list by_composed(const Plan& plan, const dense::Shape& shape, const Tensor& x, const Tensor& context,
                                   const Tensor& kept_parameters, const variable_list& parameters, bool inverse,
                                   const variable_list& grads) {
    const auto network = [&](const Tensor& kept) {
      return dense::apply(shape, joined(kept, context), gates_of(shape, context), parameters)
          .unflatten(-1, {plan.moved.size(0), plan.map->parameters()});
    };
    const auto [value, log_det] = composed(plan, x, kept_parameters, network, inverse);
    variable_list inputs{x, context, kept_parameters};
    inputs.insert(inputs.end(), parameters.begin(), parameters.end());
    auto result = graph_gradients({value, log_det}, grads, inputs);
    result.resize(result.size() + 1);
    return result;
  }
};

Tensor as_rows(const Tensor& t) { return (t.dim() == 2 ? t : t.reshape({-1, t.size(-1)})).contiguous(); }

}  // namespace

bool fused(const Plan& plan, const dense::Shape& shape, const Tensor& x) {
  return !plan.map->domain().circular && plan.map->has_gradients(x) &&
         (!plan.kept_map || plan.kept_map->has_gradients(x)) && dense::fused(shape, x);
}

Mapped apply(const PlanPtr& plan, const dense::Shape& shape, const Tensor& x, const Tensor& context,
             const Tensor& kept_parameters, at::TensorList parameters, bool inverse) {
  const auto given = [](const Tensor& t) { return t.defined() ? std::optional(t) : std::nullopt; };
  const auto out =
      Node::apply(as_rows(x), given(context.defined() ? as_rows(context) : context), given(kept_parameters), parameters,
                  Remembered::What{plan, shape, static_cast<int64_t>(parameters.size()), inverse});
  if (x.dim() == 2) return {out[0], out[1]};
  return {out[0].view(x.sizes()), out[1].view(x.sizes().slice(0, x.dim() - 1))};
}

Mapped composed(const Plan& plan, const Tensor& x, const Tensor& kept_parameters,
                const std::function<Tensor(const Tensor& kept)>& parameters_of, bool inverse) {
  const auto [x_kept, x_moved] = split_features(x, plan.kept, plan.moved);
  Mapped kept{x_kept, {}};
  if (plan.kept_map)
    kept = inverse ? plan.kept_map->inverse(x_kept, kept_parameters) : plan.kept_map->forward(x_kept, kept_parameters);
  const auto made = parameters_of(inverse ? kept.value : x_kept);
  const auto moved = inverse ? plan.map->inverse(x_moved, made) : plan.map->forward(x_moved, made);
  return {join_features(kept.value, moved.value, plan.kept, plan.moved),
          kept.log_det.defined() ? kept.log_det + moved.log_det : moved.log_det};
}

}  // namespace diffeo::coupling
