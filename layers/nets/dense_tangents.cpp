#include "diffeo/layers/nets/dense_tangents.h"

#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <utility>

#include "diffeo/layers/base/gradient_place.h"
#include "diffeo/layers/base/options.h"
#include "diffeo/layers/nets/products.h"

namespace diffeo::dense {
namespace {

using products::Matrix;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// An activation with two derivatives. `core` is what all three are made of: a sigmoid or a hyperbolic tangent.
struct Smooth {
  Tensor (*core)(const Tensor& x);
  Tensor (*value)(const Tensor& x, const Tensor& core);
  Tensor (*slope)(const Tensor& x, const Tensor& core, const Tensor& value);
  Tensor (*curvature)(const Tensor& x, const Tensor& core, const Tensor& slope);
};

const Smooth* smooth(const std::string& name) {
  // silu: s (1 + x (1 - s)), and s (1 - s) (2 + x (1 - 2 s)).
  static const Smooth silu{
      [](const Tensor& x) { return at::sigmoid(x); }, [](const Tensor& x, const Tensor& s) { return x * s; },
      [](const Tensor&, const Tensor& s, const Tensor& y) { return (1 - s).mul_(y).add_(s); },
      [](const Tensor& x, const Tensor& s, const Tensor&) { return (1 - 2 * s).mul_(x).add_(2).mul_(s).mul_(1 - s); }};
  static const Smooth tanh{[](const Tensor& x) { return at::tanh(x); },
                           [](const Tensor&, const Tensor& t) { return t; },
                           [](const Tensor&, const Tensor& t, const Tensor&) { return 1 - t * t; },
                           [](const Tensor&, const Tensor& t, const Tensor& slope) { return -2 * t * slope; }};
  static const Smooth softplus{[](const Tensor& x) { return at::sigmoid(x); },
                               [](const Tensor& x, const Tensor&) { return at::softplus(x); },
                               [](const Tensor&, const Tensor& s, const Tensor&) { return s; },
                               [](const Tensor&, const Tensor& s, const Tensor&) { return s * (1 - s); }};
  if (name == "silu") return &silu;
  if (name == "tanh") return &tanh;
  if (name == "softplus") return &softplus;
  return nullptr;
}

template <class T>
Matrix<T> matrix(const Tensor& t) {
  return {t.mutable_data_ptr<T>(), t.size(0), t.size(1)};
}

/// to = a b or, with `add`, to + a b; b or a transposed as told. Contiguous matrices.
void multiply(const Tensor& a, bool a_transposed, const Tensor& b, bool b_transposed, const Tensor& to,
              const Tensor& bias = {}, bool add = false) {
  if (!to.device().is_cpu()) {
    const auto left = a_transposed ? a.t() : a, right = b_transposed ? b.t() : b;
    Tensor out = to;
    if (add)
      out.addmm_(left, right);
    else
      at::mm_out(out, left, right);
    if (bias.defined()) out.add_(bias);
    return;
  }
  AT_DISPATCH_FLOATING_TYPES(to.scalar_type(), "diffeo::dense::carry", [&] {
    const auto left = matrix<scalar_t>(a), right = matrix<scalar_t>(b);
    products::multiply(Matrix<const scalar_t>(a_transposed ? left.transposed() : left),
                       Matrix<const scalar_t>(b_transposed ? right.transposed() : right), matrix<scalar_t>(to),
                       {.bias = bias.defined() ? bias.const_data_ptr<scalar_t>() : nullptr, .add = add});
  });
}

/// What is at an activation function: points before and after it, and the tangents before.
struct Site {
  Tensor before, core, after, slope;
  Tensor tangents, tangents_after;  ///< (K B, W)
};

Tensor rows(const Tensor& t) { return t.reshape({-1, t.size(-1)}).contiguous(); }

}  // namespace

struct Pass::Record : torch::CustomClassHolder {
  Record(const Shape& shape, const Tensor& x, at::TensorList parameters)
      : shape(shape), activation(*smooth(shape.activation)) {
    for (const auto& parameter : parameters) weights.push_back(parameter.detach().contiguous());
    value = walk(x.detach().contiguous());
  }

  int64_t sites_count() const { return shape.residual ? 2 * shape.depth : shape.depth; }
  int64_t last_map() const { return static_cast<int64_t>(weights.size()) / 2 - 1; }
  const Tensor& weight(int64_t map) const { return weights[2 * map]; }

  Tensor linear(const Tensor& h, int64_t map) const {
    const auto to = at::empty({h.size(0), weight(map).size(0)}, h.options());
    multiply(h, false, weight(map), true, to, weights[2 * map + 1]);
    return to;
  }
  Tensor linear_part(const Tensor& t, int64_t map) const {
    const auto to = at::empty({t.size(0), weight(map).size(0)}, t.options());
    multiply(t, false, weight(map), true, to);
    return to;
  }

  Tensor activate(const Tensor& before) {
    auto& site = sites.emplace_back();
    site.before = before;
    site.core = activation.core(before);
    site.after = activation.value(before, site.core);
    return site.after;
  }

  Tensor walk(const Tensor& x) {
    auto h = shape.residual ? linear(x, 0) : x;
    for (int64_t i = 0; i < shape.depth; ++i) {
      if (!shape.residual) {
        h = activate(linear(h, i));
        continue;
      }
      const auto inner = activate(linear(activate(h), 1 + 2 * i));
      const auto sum = h.clone();
      multiply(inner, false, weight(2 + 2 * i), true, sum, weights[2 * (2 + 2 * i) + 1], true);
      h = sum;
    }
    last_hidden = h;
    return linear(h, last_map());
  }

  const Tensor& slope(Site& site) const {
    if (!site.slope.defined()) site.slope = activation.slope(site.before, site.core, site.after);
    return site.slope;
  }

  /// (K B, W) times the slopes (B, W) at a site.
  Tensor sloped(Site& site, const Tensor& tangents) const {
    const auto& by = slope(site);
    return (tangents.view({-1, by.size(0), by.size(1)}) * by).view_as(tangents);
  }

  Tensor activate_tangents(size_t number, const Tensor& tangents, bool keep) {
    auto& site = sites[number];
    auto after = sloped(site, tangents);
    if (keep) {
      site.tangents = tangents;
      site.tangents_after = after;
    }
    return after;
  }

  /// (K B, I) to (K B, O).
  Tensor walk_tangents(const Tensor& vectors, bool keep) {
    auto t = shape.residual ? linear_part(vectors, 0) : vectors;
    for (int64_t i = 0; i < shape.depth; ++i) {
      if (!shape.residual) {
        t = activate_tangents(i, linear_part(t, i), keep);
        continue;
      }
      const auto inner = activate_tangents(2 * i + 1, linear_part(activate_tangents(2 * i, t, keep), 1 + 2 * i), keep);
      const auto sum = t.clone();
      multiply(inner, false, weight(2 + 2 * i), true, sum, {}, true);
      t = sum;
    }
    if (keep) last_tangents = t;
    return linear_part(t, last_map());
  }

  Shape shape;
  const Smooth& activation;
  std::vector<Tensor> weights;  ///< without a history
  std::vector<Site> sites;      ///< in the order of the way there
  Tensor value, last_hidden, last_tangents, pushed;
};

namespace {

constexpr std::array<int64_t, 1> rows_axis{0};

/// Derivatives by points and tangents of one layer; either may be undefined, for 0.
struct Slopes {
  Tensor by_value, by_tangents;
};

/// The way back through a Record.
class Backward {
 public:
  Backward(Pass::Record& record, const variable_list& parameters, bool want_x, bool want_vectors)
      : record_(record), want_x_(want_x), want_vectors_(want_vectors) {
    for (const auto& parameter : parameters) gradients.push_back(gradient_for(parameter));
  }

  Slopes run(const Tensor& x, const Tensor& vectors, Slopes g) {
    const auto& shape = record_.shape;
    const auto last = record_.last_map();
    by_map(last, g, record_.last_hidden, record_.last_tangents);
    g = by_input(last, g, true, true);
    for (int64_t i = shape.depth; i-- > 0;) {
      if (!shape.residual) {
        g = by_site(record_.sites[i], g);
        const auto& before = i > 0 ? record_.sites[i - 1].after : x;
        by_map(i, g, before, i > 0 ? record_.sites[i - 1].tangents_after : vectors);
        if (i > 0) g = by_input(i, g, true, true);
        continue;
      }
      auto &first = record_.sites[2 * i], &second = record_.sites[2 * i + 1];
      by_map(2 + 2 * i, g, second.after, second.tangents_after);
      auto inner = by_site(second, by_input(2 + 2 * i, g, true, true));
      by_map(1 + 2 * i, inner, first.after, first.tangents_after);
      inner = by_site(first, by_input(1 + 2 * i, inner, true, true));
      g = {sum(g.by_value, inner.by_value), sum(g.by_tangents, inner.by_tangents)};
    }
    if (!shape.residual && shape.depth == 0) return g;
    if (shape.residual) by_map(0, g, x, vectors);
    return by_input(0, g, want_x_, want_vectors_);
  }

  variable_list gradients;

 private:
  static Tensor sum(const Tensor& a, const Tensor& b) { return !a.defined() ? b : !b.defined() ? a : a + b; }

  /// Gradients of weight and bias of a map.
  void by_map(int64_t map, const Slopes& g, const Tensor& h, const Tensor& t) {
    auto &weight = gradients[2 * map], &bias = gradients[2 * map + 1];
    bool filled = false;
    if (g.by_value.defined()) {
      multiply(g.by_value, true, h, false, weight);
      at::sum_out(bias, g.by_value, at::IntArrayRef(rows_axis));
      filled = true;
    } else {
      bias.zero_();
    }
    if (g.by_tangents.defined()) {
      multiply(g.by_tangents, true, t, false, weight, {}, filled);
      filled = true;
    }
    if (!filled) weight.zero_();
  }

  Slopes by_input(int64_t map, const Slopes& g, bool want_value, bool want_tangents) const {
    const auto one = [&](const Tensor& by_output, bool wanted) {
      if (!by_output.defined() || !wanted) return Tensor();
      const auto& weight = record_.weight(map);
      const auto to = at::empty({by_output.size(0), weight.size(1)}, by_output.options());
      multiply(by_output, false, weight, false, to);
      return to;
    };
    return {one(g.by_value, want_value), one(g.by_tangents, want_tangents)};
  }

  /// Through an activation: tangents are multiplied by its slope, which depends on the points.
  Slopes by_site(Site& site, const Slopes& g) const {
    Slopes result;
    if (g.by_value.defined()) result.by_value = g.by_value * record_.slope(site);
    if (!g.by_tangents.defined()) return result;
    result.by_tangents = record_.sloped(site, g.by_tangents);
    const auto& slope = record_.slope(site);
    auto bend = g.by_tangents * site.tangents;
    if (bend.size(0) != slope.size(0)) bend = bend.view({-1, slope.size(0), slope.size(1)}).sum(0);
    bend.mul_(record_.activation.curvature(site.before, site.core, slope));
    result.by_value = result.by_value.defined() ? result.by_value.add_(bend) : bend;
    return result;
  }

  Pass::Record& record_;
  bool want_x_, want_vectors_;
};

class Carry : public torch::autograd::Function<Carry> {
 public:
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const std::optional<Tensor>& vectors,
                               at::TensorList parameters, const c10::intrusive_ptr<Pass::Record>& record) {
    ctx->saved_data["record"] = c10::IValue::make_capsule(record);
    variable_list saved{x, vectors.value_or(Tensor())};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    ctx->save_for_backward(saved);
    ctx->set_materialize_grads(false);
    // Not kept by the record, which the node of these outputs keeps: they would keep one another for ever.
    variable_list outputs{std::move(record->value)};
    if (vectors) outputs.push_back(std::move(record->pushed));
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    auto& record = static_cast<Pass::Record&>(*ctx->saved_data["record"].toCapsule());
    const auto &x = saved[0], &vectors = saved[1];
    const variable_list parameters(saved.begin() + 2, saved.end());
    if (at::GradMode::is_enabled()) return by_reference(record.shape, x, vectors, parameters, grads);
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto by_tangents = vectors.defined() && grads.size() > 1 && grads[1].defined() ? rows(grads[1]) : Tensor();
    Backward way(record, parameters, ctx->needs_input_grad(0), vectors.defined() && ctx->needs_input_grad(1));
    const auto by = way.run(x.contiguous(), vectors.defined() ? rows(vectors) : vectors,
                            {grads[0].defined() ? grads[0].contiguous() : grads[0], by_tangents});
    variable_list result{by.by_value, by.by_tangents.defined() ? by.by_tangents.view_as(vectors) : Tensor()};
    result.insert(result.end(), way.gradients.begin(), way.gradients.end());
    result.emplace_back();
    return result;
  }

  /// Gradients that can be differentiated themselves.
  static variable_list by_reference(const Shape& shape, const Tensor& x, const Tensor& vectors,
                                    const variable_list& parameters, const variable_list& grads) {
    variable_list inputs{x, vectors}, wanted;
    inputs.insert(inputs.end(), parameters.begin(), parameters.end());
    for (const auto& input : inputs)
      if (input.defined() && input.requires_grad()) wanted.push_back(input);
    const auto [value, tangents] = carry_reference(shape, x, vectors, parameters);
    variable_list outputs, by_outputs;
    const auto add = [&](const Tensor& output, const Tensor& by) {
      if (!output.defined() || !by.defined()) return;
      outputs.push_back(output);
      by_outputs.push_back(by);
    };
    add(value, grads[0]);
    if (grads.size() > 1) add(tangents, grads[1]);
    const auto found = torch::autograd::grad(outputs, wanted, by_outputs, true, true, true);
    variable_list result;
    size_t next = 0;
    for (const auto& input : inputs)
      result.push_back(input.defined() && input.requires_grad() ? found[next++] : Tensor());
    result.emplace_back();
    return result;
  }
};

}  // namespace

void check_smooth(const std::string& activation) {
  if (!smooth(activation))
    throw SpecError("activation",
                    c10::str("must be silu, tanh or softplus, which have a second derivative, got '", activation, "'"));
}

Pass::Pass(const Shape& shape, const Tensor& x, at::TensorList parameters) : parameters_(parameters.vec()) {
  const at::AutoDispatchBelowADInplaceOrView below;
  record_ = c10::make_intrusive<Record>(shape, x, parameters);
  value_ = record_->value.detach();
}

Pass::~Pass() = default;

const Tensor& Pass::value() const { return value_; }

Tensor Pass::push(const Tensor& vectors, bool keep) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const auto flat = rows(vectors.detach());
  const auto pushed = record_->walk_tangents(flat, keep);
  const auto tangents = pushed.view({vectors.size(0), -1, pushed.size(1)});
  if (keep) record_->pushed = tangents;
  return tangents.detach();
}

Carried Pass::connect(const Tensor& x, const Tensor& vectors) {
  const auto outputs =
      Carry::apply(x, vectors.defined() ? std::optional(vectors) : std::nullopt, at::TensorList(parameters_), record_);
  return {outputs[0], outputs.size() > 1 ? outputs[1] : Tensor()};
}

Carried carry(const Shape& shape, const Tensor& x, const Tensor& vectors, at::TensorList parameters) {
  if (x.numel() == 0) return carry_reference(shape, x, vectors, parameters);
  const auto flat = rows(x);
  const auto flat_vectors = vectors.reshape({vectors.size(0), -1, vectors.size(-1)});
  const auto wanted = [](const Tensor& t) { return t.requires_grad(); };
  const bool differentiable = at::GradMode::is_enabled() && (x.requires_grad() || vectors.requires_grad() ||
                                                             std::any_of(parameters.begin(), parameters.end(), wanted));
  Pass pass(shape, flat, parameters);
  auto tangents = pass.push(flat_vectors, differentiable);
  auto value = pass.value();
  if (differentiable) {
    const auto carried = pass.connect(flat, flat_vectors);
    value = carried.value;
    tangents = carried.tangents;
  }
  auto sizes = x.sizes().vec();
  sizes.back() = value.size(-1);
  value = value.view(sizes);
  sizes.insert(sizes.begin(), vectors.size(0));
  return {value, tangents.view(sizes)};
}

Carried carry_reference(const Shape& shape, const Tensor& x, const Tensor& vectors, at::TensorList parameters) {
  const auto& act = *smooth(shape.activation);
  Tensor h = x, t = vectors;
  const auto map = [&](int64_t number, const Tensor& value, const Tensor& tangents) -> Carried {
    const auto& weight = parameters[2 * number];
    return {at::linear(value, weight, parameters[2 * number + 1]),
            tangents.defined() ? at::linear(tangents, weight) : tangents};
  };
  const auto activate = [&](const Carried& c) -> Carried {
    const auto core = act.core(c.value), after = act.value(c.value, core);
    if (!c.tangents.defined()) return {after, {}};
    const auto slope = shape.activation == "silu"   ? core * (1 + c.value * (1 - core))
                       : shape.activation == "tanh" ? 1 - core * core
                                                    : core;
    return {after, c.tangents * slope};
  };
  Carried c{h, t};
  if (shape.residual) c = map(0, c.value, c.tangents);
  for (int64_t i = 0; i < shape.depth; ++i) {
    if (!shape.residual) {
      c = map(i, c.value, c.tangents);
      c = activate(c);
      continue;
    }
    auto inner = activate(c);
    inner = activate(map(1 + 2 * i, inner.value, inner.tangents));
    inner = map(2 + 2 * i, inner.value, inner.tangents);
    c = {c.value + inner.value, c.tangents.defined() ? c.tangents + inner.tangents : c.tangents};
  }
  return map(static_cast<int64_t>(parameters.size()) / 2 - 1, c.value, c.tangents);
}

}  // namespace diffeo::dense
