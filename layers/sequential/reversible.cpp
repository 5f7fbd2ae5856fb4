#include "diffeo/layers/sequential/reversible.h"

#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "diffeo/layers/base/graph_gradients.h"
#include "diffeo/layers/sequential/replay.h"

namespace diffeo {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor context_for(const Layer& layer, const Tensor& context) { return layer.context_size() > 0 ? context : Tensor(); }

bool asks_for_gradients(const Layer& layer, const Tensor& context) {
  if (layer.context_size() > 0 && context.requires_grad()) return true;
  const auto parameters = layer.parameters();
  return std::any_of(parameters.begin(), parameters.end(), [](const auto& p) { return p.requires_grad(); });
}

bool is_invertible(const Traits& traits) {
  return traits.closed_inverse && traits.quick_inverse && !traits.random && !traits.injective;
}

/// The largest difference as a part of the largest value, a scalar; undefined for no values.
Tensor relative_error(const Tensor& got, const Tensor& want) {
  if (want.numel() == 0) return {};
  const auto least = std::numeric_limits<float>::min();
  return (got.detach() - want).abs().amax() / want.abs().amax().clamp_min(least);
}

Tensor sum(const Tensor& a, const Tensor& b) {
  if (!a.defined()) return b;
  return b.defined() ? a + b : a;
}

/// What a forward pass leaves for the backward pass, besides the tensors that autograd looks after.
struct Pass : torch::CustomClassHolder {
  std::vector<LayerPtr> layers;
  size_t first = 0;                             ///< where they begin among the layers that `inexact` counts
  std::vector<std::vector<size_t>> parameters;  ///< of each layer: where they stand among those of all
  std::vector<Before> before;
  std::vector<bool> training;
  std::vector<size_t> kept;  ///< layers whose inputs are kept, besides the first one
  std::shared_ptr<Inexact> inexact;
};

/// Every parameter once, and where each layer's are among them.
variable_list all_parameters(Pass& pass) {
  variable_list all;
  std::unordered_map<const c10::TensorImpl*, size_t> places;
  for (const auto& layer : pass.layers) {
    auto& mine = pass.parameters.emplace_back();
    for (const auto& parameter : layer->parameters()) {
      const auto [place, added] = places.emplace(parameter.unsafeGetTensorImpl(), all.size());
      if (added) all.push_back(parameter);
      if (std::find(mine.begin(), mine.end(), place->second) == mine.end()) mine.push_back(place->second);
    }
  }
  return all;
}

struct Gradients {
  Tensor by_x, by_context;
  variable_list by_parameters;
};

/// The way back through the layers, from the last output to the first input.
class WayBack {
 public:
  /// `inputs`: of each layer, undefined where it is not kept, that of the first layer defined. `context` and the first
  /// input require gradients where they are wanted; `wanted` says it of the parameters.
  WayBack(const Pass& pass, variable_list inputs, Tensor context, variable_list parameters, std::vector<bool> wanted,
          Tensor by_log_det)
      : pass_(pass),
        inputs_(std::move(inputs)),
        context_(std::move(context)),
        parameters_(std::move(parameters)),
        wanted_(std::move(wanted)),
        by_log_det_(std::move(by_log_det)) {}

  /// Gradients, given the value that the last layer made and the gradient by it.
  Gradients from(Tensor value, const Tensor& by_value) const {
    auto all = none();
    all.by_x = by_value;
    for (auto end = pass_.layers.size(); end > 0;) {
      auto begin = end - 1;
      while (!inputs_[begin].defined()) --begin;
      auto part = none();
      if (!by_inverses(begin, end, value, all.by_x, part)) {
        part = none();
        by_forward(begin, end, all.by_x, part);
      }
      all.by_x = part.by_x;
      all.by_context = sum(all.by_context, part.by_context);
      add(part, all);
      value = inputs_[begin].detach();
      end = begin;
    }
    return all;
  }

 private:
  Gradients none() const { return {.by_parameters = variable_list(parameters_.size())}; }

  static void add(Gradients& part, Gradients& all) {
    for (size_t i = 0; i < all.by_parameters.size(); ++i)
      all.by_parameters[i] = sum(all.by_parameters[i], std::exchange(part.by_parameters[i], Tensor()));
  }

  Tensor context_of(size_t i) const { return context_for(*pass_.layers[i], context_); }
  Replay replay(size_t i) const {
    return Replay(*pass_.layers[i], pass_.before[i], pass_.training[i], inputs_[0].device());
  }

  /// The gradient by the input of layer i, given its graph; the others are added to `part`.
  Tensor through(size_t i, const Tensor& input, const Mapped& output, const Tensor& by_value, Gradients& part) const {
    variable_list outputs, by_outputs, wanted;
    const auto from = [&](const Tensor& tensor, const Tensor& by_tensor) {
      if (!tensor.requires_grad() || !by_tensor.defined()) return;
      outputs.push_back(tensor);
      by_outputs.push_back(by_tensor);
    };
    from(output.value, by_value);
    from(output.log_det, by_log_det_);
    const bool by_input = input.requires_grad(), by_context = context_of(i).defined() && context_.requires_grad();
    if (by_input) wanted.push_back(input);
    if (by_context) wanted.push_back(context_);
    for (const auto p : pass_.parameters[i])
      if (wanted_[p]) wanted.push_back(parameters_[p]);
    if (outputs.empty() || wanted.empty()) return {};
    auto found = torch::autograd::grad(outputs, wanted, by_outputs, false, false, true);
    size_t next = 0;
    Tensor by_x;
    if (by_input) by_x = std::move(found[next++]);
    if (by_context) part.by_context = sum(part.by_context, found[next++]);
    for (const auto p : pass_.parameters[i])
      if (wanted_[p]) part.by_parameters[p] = sum(part.by_parameters[p], std::exchange(found[next++], Tensor()));
    return by_x;
  }

  /// The same, from the input of layer i as it was. `error` is told how far its output is from `value`.
  Tensor forward_again(size_t i, const Tensor& input, const Tensor& by_value, Gradients& part, const Tensor& value = {},
                       Tensor* error = nullptr) const {
    const auto guard = replay(i);
    const auto x = input.detach().requires_grad_(i > 0 || inputs_[0].requires_grad());
    Mapped output;
    {
      const at::AutoGradMode with_graph(true);
      output = pass_.layers[i]->forward(x, context_of(i));
    }
    if (error) *error = relative_error(output.value, value);
    return through(i, x, output, by_value, part);
  }

  /// Through layers [begin, end), of which only the first one's input is kept. False, and the gradients worth nothing,
  /// if the inverses were off too far.
  bool by_inverses(size_t begin, size_t end, Tensor value, Tensor by_value, Gradients& part) const {
    std::vector<Tensor> errors;  // of layers end - 1 to begin
    for (auto i = end - 1; i > begin; --i) {
      Retraced again;
      {
        const at::AutoGradMode with_graph(true);
        const auto guard = replay(i);
        again = pass_.layers[i]->retrace(value, context_of(i));
      }
      errors.push_back(relative_error(again.output.value, value));
      by_value = through(i, again.input, again.output, by_value, part);
      value = again.input.detach();
    }
    if (errors.empty() || !errors[0].defined()) {
      part.by_x = forward_again(begin, inputs_[begin], by_value, part);
      return true;
    }
    errors.emplace_back();
    part.by_x = forward_again(begin, inputs_[begin], by_value, part, value, &errors.back());
    const auto found = at::stack(errors).to(at::kCPU, at::kDouble);  // the GPU is waited for once
    const auto bound = inverse_error_bound(value.scalar_type());
    if (found.le(bound).all().item<bool>()) return true;
    if (inputs_[begin].isfinite().all().item<bool>()) {
      const auto alone = found.slice(0, 0, found.size(0) - 1).nan_to_num(std::numeric_limits<double>::infinity());
      const auto worst = alone.argmax().item<int64_t>();
      pass_.inexact->add(pass_.first + (alone[worst].item<double>() > bound ? end - 1 - worst : (begin + end) / 2));
    }
    return false;
  }

  void by_forward(size_t begin, size_t end, Tensor by_value, Gradients& part) const {
    variable_list inputs{inputs_[begin]};
    for (auto i = begin; i + 1 < end; ++i) {
      const auto guard = replay(i);
      torch::NoGradGuard no_grad;
      inputs.push_back(pass_.layers[i]->forward(inputs.back(), context_of(i)).value);
    }
    for (auto i = end; i-- > begin;) by_value = forward_again(i, inputs[i - begin], by_value, part);
    part.by_x = by_value;
  }

  const Pass& pass_;
  variable_list inputs_;
  Tensor context_;
  variable_list parameters_;
  std::vector<bool> wanted_;
  Tensor by_log_det_;
};

class Recomputing : public torch::autograd::Function<Recomputing> {
 public:
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const std::optional<Tensor>& context,
                               at::TensorList parameters, const c10::intrusive_ptr<Pass>& pass, Memory memory) {
    variable_list saved{x, context.value_or(Tensor())}, kept;
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    auto value = x;
    Tensor log_det;
    for (size_t i = 0; i < pass->layers.size(); ++i) {
      auto& layer = *pass->layers[i];
      pass->training.push_back(layer.is_training());
      Mapped step;
      {
        // A layer may compute in another way, to other last bits, where nobody asks for gradients.
        const at::AutoGradMode as_later(memory == Memory::checkpoint);
        const auto input = value.detach().requires_grad_(i > 0 || x.requires_grad());
        step = record(layer, input, context_for(layer, saved[1]), pass->before.emplace_back());
        step = {step.value.detach(), step.log_det.detach()};
      }
      const bool keeps = memory == Memory::checkpoint || !pass->before[i].nothing() || !is_invertible(layer.traits()) ||
                         pass->inexact->contains(pass->first + i);
      if (i > 0 && keeps) {
        pass->kept.push_back(i);
        kept.push_back(value);
      }
      value = step.value;
      log_det = log_det.defined() ? log_det + step.log_det : step.log_det;
    }
    saved.insert(saved.end(), kept.begin(), kept.end());
    saved.push_back(value);
    ctx->save_for_backward(saved);
    ctx->saved_data["pass"] = c10::IValue::make_capsule(pass);
    ctx->saved_data["parameters"] = static_cast<int64_t>(parameters.size());
    ctx->set_materialize_grads(false);
    return {value, log_det};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto capsule = ctx->saved_data["pass"].toCapsule();
    const auto& pass = static_cast<const Pass&>(*capsule);
    const auto saved = ctx->get_saved_variables();
    const auto count = static_cast<size_t>(ctx->saved_data["parameters"].toInt());
    const auto &x = saved[0], &context = saved[1];
    const variable_list parameters(saved.begin() + 2, saved.begin() + 2 + count);
    const auto gradients = at::GradMode::is_enabled() ? differentiable(pass, x, context, parameters, grads)
                                                      : once(ctx, pass, saved, parameters, grads);
    variable_list result{gradients.by_x, gradients.by_context};
    result.insert(result.end(), gradients.by_parameters.begin(), gradients.by_parameters.end());
    result.resize(result.size() + 2);
    return result;
  }

 private:
  static Gradients once(AutogradContext* ctx, const Pass& pass, const variable_list& saved,
                        const variable_list& parameters, const variable_list& grads) {
    // Tensors that are not there have no number among the inputs of the node.
    const bool has_context = saved[1].defined();
    variable_list inputs(pass.layers.size());
    inputs[0] = saved[0].detach().requires_grad_(ctx->needs_input_grad(0));
    auto at = 2 + parameters.size();
    for (const auto layer : pass.kept) inputs[layer] = saved[at++];
    const auto context = has_context ? saved[1].detach().requires_grad_(ctx->needs_input_grad(1)) : Tensor();
    std::vector<bool> wanted;
    for (size_t i = 0; i < parameters.size(); ++i) wanted.push_back(ctx->needs_input_grad(1 + has_context + i));
    return WayBack(pass, std::move(inputs), context, parameters, std::move(wanted), grads[1])
        .from(saved[at].detach(), grads[0]);
  }

  /// Gradients that can be differentiated themselves.
  static Gradients differentiable(const Pass& pass, const Tensor& x, const Tensor& context,
                                  const variable_list& parameters, const variable_list& grads) {
    auto value = x;
    Tensor log_det;
    for (size_t i = 0; i < pass.layers.size(); ++i) {
      check(pass.before[i].buffers.empty(), "sequential: layers/", pass.first + i,
            " changes in training (batch normalisation, for example), which has no second derivatives without the "
            "memory that they take; use the memory normal, or evaluation mode");
      const Replay guard(*pass.layers[i], pass.before[i], pass.training[i], x.device());
      const auto step = pass.layers[i]->forward(value, context_for(*pass.layers[i], context));
      value = step.value;
      log_det = log_det.defined() ? log_det + step.log_det : step.log_det;
    }
    variable_list outputs, by_outputs, inputs{x, context};
    const auto from = [&](const Tensor& tensor, const Tensor& by_tensor) {
      if (!tensor.requires_grad() || !by_tensor.defined()) return;
      outputs.push_back(tensor);
      by_outputs.push_back(by_tensor);
    };
    from(value, grads[0]);
    from(log_det, grads[1]);
    inputs.insert(inputs.end(), parameters.begin(), parameters.end());
    const auto found = outputs.empty() ? variable_list(inputs.size()) : graph_gradients(outputs, by_outputs, inputs);
    return {found[0], found[1], variable_list(found.begin() + 2, found.end())};
  }
};

}  // namespace

Memory memory_named(const std::string& name) {
  check_choice("memory", name, {"normal", "checkpoint", "constant"});
  return name == "normal" ? Memory::normal : name == "checkpoint" ? Memory::checkpoint : Memory::constant;
}

bool Inexact::contains(size_t layer) const {
  const std::lock_guard lock(mutex_);
  return std::find(layers_.begin(), layers_.end(), layer) != layers_.end();
}

void Inexact::add(size_t layer) {
  const std::lock_guard lock(mutex_);
  if (std::find(layers_.begin(), layers_.end(), layer) == layers_.end()) layers_.push_back(layer);
}

std::vector<size_t> Inexact::layers() const {
  const std::lock_guard lock(mutex_);
  return layers_;
}

double inverse_error_bound(torch::Dtype dtype) {
  return std::sqrt(dtype == torch::kFloat64 ? std::numeric_limits<double>::epsilon()
                                            : std::numeric_limits<float>::epsilon());
}

Mapped recomputing(const std::vector<LayerPtr>& layers, const Tensor& x, const Tensor& context, Memory memory,
                   const std::shared_ptr<Inexact>& inexact) {
  // Preprocessing asks for no gradients: it needs no way back.
  auto value = x;
  Tensor log_det;
  size_t first = 0;
  for (; first < layers.size() && !value.requires_grad() && !asks_for_gradients(*layers[first], context); ++first) {
    const auto step = layers[first]->forward(value, context_for(*layers[first], context));
    value = step.value;
    log_det = log_det.defined() ? log_det + step.log_det : step.log_det;
  }
  if (first == layers.size()) return {value, log_det};

  auto pass = c10::make_intrusive<Pass>();
  pass->layers.assign(layers.begin() + first, layers.end());
  pass->first = first;
  pass->inexact = inexact;
  const auto parameters = all_parameters(*pass);
  const auto rest = Recomputing::apply(value, context.defined() ? std::optional(context) : std::nullopt,
                                       at::TensorList(parameters), pass, memory);
  return {rest[0], log_det.defined() ? log_det + rest[1] : rest[1]};
}

}  // namespace diffeo
