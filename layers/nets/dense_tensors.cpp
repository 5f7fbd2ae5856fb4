#include "diffeo/layers/nets/dense_tensors.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_addmm_activation.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros_like.h>

#include "diffeo/layers/base/gradient_place.h"
#include "diffeo/layers/nets/activation.h"

namespace diffeo::dense {
namespace {

int64_t maps_of_block(const Shape& shape) { return shape.gated ? 3 : 2; }

class Forward {
 public:
  Forward(const Shape& shape, at::TensorList parameters, bool keep)
      : shape_(shape),
        parameters_(parameters),
        activate_(activation(shape.activation).forward),
        relu_(shape.activation == "relu"),
        keep_(keep) {}

  Passed run(const Tensor& x, const Tensor& context) {
    auto h = shape_.residual ? linear(x, 0) : x;
    for (int64_t i = 0; i < shape_.depth; ++i) h = shape_.residual ? block(h, context, i) : hidden_of(h, i);
    if (shape_.residual) keep(h);
    auto output = linear(h, static_cast<int64_t>(parameters_.size()) / 2 - 1);
    return {output, std::move(kept_)};
  }

 private:
  void keep(const Tensor& t) {
    if (keep_) kept_.push_back(t);
  }

  /// x W^T + b.
  Tensor linear(const Tensor& x, int64_t map) const {
    return at::addmm(parameters_[2 * map + 1], x, parameters_[2 * map].t());
  }

  /// act(x W^T + b). A rectifier's derivative is read off its result; others may want to know what came before, too.
  Tensor hidden_of(const Tensor& x, int64_t map) {
    if (relu_) {
      auto after = at::_addmm_activation(parameters_[2 * map + 1], x, parameters_[2 * map].t());
      keep(after);
      return after;
    }
    const auto before = linear(x, map);
    auto after = activate_(before);
    keep(before);
    keep(after);
    return after;
  }

  Tensor block(const Tensor& h, const Tensor& context, int64_t number) {
    const auto map = 1 + number * maps_of_block(shape_);
    if (!relu_) keep(h);
    const auto after = activate_(h);
    keep(after);
    const auto outcome = linear(hidden_of(after, map), map + 1);
    if (!shape_.gated) return h + outcome;
    const auto gate = at::sigmoid(linear(context, map + 2));
    keep(outcome);
    keep(gate);
    return at::addcmul(h, outcome, gate);
  }

  const Shape& shape_;
  at::TensorList parameters_;
  Tensor (*activate_)(const Tensor&);
  bool relu_, keep_;
  std::vector<Tensor> kept_;
};

/// Takes what was kept from the end.
class Backward {
 public:
  Backward(const Shape& shape, const std::vector<Tensor>& parameters, const std::vector<Tensor>& kept)
      : shape_(shape),
        parameters_(parameters),
        back_(activation(shape.activation).backward),
        relu_(shape.activation == "relu"),
        kept_(kept),
        next_(kept.size()) {}

  Gradients run(const Tensor& x, const Tensor& context, const Tensor& by_output, const Wanted& wanted) {
    if (wanted.parameters)
      for (const auto& parameter : parameters_) gradients_.by_parameters.push_back(gradient_for(parameter));
    if (wanted.context) gradients_.by_context = at::zeros_like(context);
    const int64_t last = static_cast<int64_t>(parameters_.size()) / 2 - 1;
    auto g = by_output;
    if (shape_.residual) {
      by_map(last, g, previous());
      g = by_input(last, g);
      for (int64_t i = shape_.depth - 1; i >= 0; --i) g = block(g, context, i);
    } else {
      for (int64_t map = last; map > 0; --map) {
        const auto after = previous();
        by_map(map, g, after);
        g = by_before(by_input(map, g), after);
      }
    }
    by_map(0, g, x);
    if (wanted.x) gradients_.by_x = by_input(0, g);
    return std::move(gradients_);
  }

 private:
  const Tensor& previous() { return kept_[--next_]; }

  /// The gradients of a map's weight and bias, given what it was applied to.
  void by_map(int64_t map, const Tensor& by_output, const Tensor& x) {
    if (gradients_.by_parameters.empty()) return;
    at::mm_out(gradients_.by_parameters[2 * map], by_output.t(), x);
    at::sum_out(gradients_.by_parameters[2 * map + 1], by_output, 0);
  }
  Tensor by_input(int64_t map, const Tensor& by_output) const { return at::mm(by_output, parameters_[2 * map]); }

  /// Back through an activation whose result was kept last, before that what it was applied to.
  Tensor by_before(const Tensor& by_after, const Tensor& after) {
    return back_(by_after, relu_ ? Tensor() : previous(), after);
  }

  Tensor block(const Tensor& g, const Tensor& context, int64_t number) {
    const auto map = 1 + number * maps_of_block(shape_);
    auto by_outcome = g;
    if (shape_.gated) {
      const auto gate = previous(), outcome = previous();
      const auto by_gate = at::sigmoid_backward(g * outcome, gate);
      by_map(map + 2, by_gate, context);
      if (gradients_.by_context.defined()) gradients_.by_context.addmm_(by_gate, parameters_[2 * (map + 2)]);
      by_outcome = g * gate;
    }
    const auto inner = previous();
    by_map(map + 1, by_outcome, inner);
    const auto by_middle = by_before(by_input(map + 1, by_outcome), inner);
    const auto after = previous();
    by_map(map, by_middle, after);
    return g + by_before(by_input(map, by_middle), after);
  }

  const Shape& shape_;
  const std::vector<Tensor>& parameters_;
  Tensor (*back_)(const Tensor&, const Tensor&, const Tensor&);
  bool relu_;
  const std::vector<Tensor>& kept_;
  size_t next_;
  Gradients gradients_;
};

}  // namespace

Passed forward_by_tensors(const Shape& shape, const Tensor& x, const Tensor& context, at::TensorList parameters,
                          bool keep) {
  return Forward(shape, parameters, keep).run(x, context);
}

Gradients backward_by_tensors(const Shape& shape, const Tensor& x, const Tensor& context,
                              const std::vector<Tensor>& parameters, const std::vector<Tensor>& kept,
                              const Tensor& by_output, const Wanted& wanted) {
  return Backward(shape, parameters, kept).run(x, context, by_output, wanted);
}

}  // namespace diffeo::dense
