#include "diffeo/flows/energy.h"

#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "diffeo/layers/base/constant_log_det_guard.h"
#include "diffeo/layers/base/training_guard.h"
#include "diffeo/layers/sequential/sequential.h"

namespace diffeo {
namespace {

const std::vector<LayerPtr>& layers_of(const Flow& flow) {
  return static_cast<const Sequential&>(*flow.layers()).layers();
}

Space space_after(const Flow& flow, int64_t first) {
  const auto& layers = layers_of(flow);
  const auto count = static_cast<int64_t>(layers.size());
  check(first >= 0 && first <= count, "energy: the flow has ", count, " layers, cannot begin after ", first);
  return first < count ? layers[first]->domain() : flow.base()->space();
}

Tensor context_for(const Layer& layer, const Tensor& context) { return layer.context_size() > 0 ? context : Tensor(); }

/// A point (*event) that lies inside of a space.
Tensor some_point(const Space& space, const torch::TensorOptions& options) {
  std::vector<double> values;
  for (const auto& [lower, upper, circular] : space.axes) {
    const bool below = std::isfinite(lower), above = std::isfinite(upper);
    values.push_back(below && above ? (lower + upper) / 2 : below ? lower + 1 : above ? upper - 1 : 0.0);
  }
  return torch::tensor(values, torch::kFloat64).to(options).reshape(space.event);
}

/// The gradient by the points before affine layers, of that by the points after them.
Tensor pulled_back(const std::vector<AffineMap*>& layers, Tensor gradient) {
  for (size_t i = layers.size(); i-- > 0;) gradient = layers[i]->transposed(gradient);
  return gradient;
}

}  // namespace

Energy::Energy(FlowPtr flow, int64_t first)
    : LogDensity(space_after(*flow, first)),
      flow_(register_module("flow", std::move(flow))),
      first_(static_cast<size_t>(first)) {
  const auto traits = flow_->layers()->traits();
  check(!traits.random, "energy: the flow has random layers, and so neither an energy nor a score");
  check(!traits.injective, "energy: the flow has injective layers, whose points have no energy off their manifold");
}

const std::vector<LayerPtr>& Energy::layers() const { return layers_of(*flow_); }

Tensor Energy::inner_context(const Tensor& x, const Tensor& context) {
  const auto batch = x.sizes().slice(0, std::max<int64_t>(0, x.dim() - static_cast<int64_t>(space().event.size())));
  return flow_->embedded(checked_context("energy", context, flow_->context_size(), batch));
}

std::vector<AffineMap*> Energy::affine_front() const {
  std::vector<AffineMap*> front;
  for (size_t i = first_; i < layers().size(); ++i) {
    auto* const affine = dynamic_cast<AffineMap*>(layers()[i].get());
    if (affine == nullptr) break;
    front.push_back(affine);
  }
  return front;
}

Tensor Energy::energy_after(size_t first, Tensor point, const Tensor& inner) {
  const ConstantLogDetGuard without_constants;
  Tensor log_det;
  for (size_t i = first; i < layers().size(); ++i) {
    const auto step = layers()[i]->forward(point, context_for(*layers()[i], inner));
    point = step.value;
    log_det = log_det.defined() ? log_det + step.log_det : step.log_det;
  }
  const auto log_prob = flow_->base()->log_prob(point, flow_->base()->context_size() > 0 ? inner : Tensor());
  return log_det.defined() ? -(log_prob + log_det) : -log_prob;
}

Tensor Energy::energy(const Tensor& x, const Tensor& context) {
  return energy_after(first_, x, inner_context(x, context));
}

Tensor Energy::pass_front(const Tensor& x) {
  const ConstantLogDetGuard without_constants;
  auto point = x;
  for (size_t i = first_, end = first_ + affine_front().size(); i < end; ++i) point = layers()[i]->forward(point).value;
  return point.requires_grad() ? point : point.detach().requires_grad_();
}

Tensor Energy::score(const Tensor& x, const Tensor& context, bool differentiable) {
  const torch::AutoGradMode with_gradients(true);
  const auto front = affine_front();
  const auto point = pass_front(x);
  const auto total = -energy_after(first_ + front.size(), point, inner_context(x, context)).sum();
  if (!total.requires_grad()) return torch::zeros_like(x);
  const auto slope = torch::autograd::grad({total}, {point}, {}, differentiable, differentiable, true)[0];
  if (!slope.defined()) return torch::zeros_like(x);
  const torch::AutoGradMode with_graph(differentiable);
  return pulled_back(front, slope);
}

Slices Energy::slices(const Tensor& x, const Tensor& directions, const Tensor& context, bool differentiable) {
  const torch::AutoGradMode with_gradients(true);
  const auto front = affine_front();
  const auto point = pass_front(x);
  const auto total = -energy_after(first_ + front.size(), point, inner_context(x, context)).sum();
  const auto batch = x.sizes().slice(0, x.dim() - static_cast<int64_t>(space().event.size()));
  auto sizes = batch.vec();
  sizes.insert(sizes.begin(), directions.size(0));
  Slices found{torch::zeros_like(x), torch::zeros(sizes, x.options().requires_grad(false))};
  if (!total.requires_grad()) return found;
  const auto slope = torch::autograd::grad({total}, {point}, {}, true, true, true)[0];
  if (!slope.defined()) return found;
  auto along = directions;
  {
    const torch::AutoGradMode with_graph(differentiable);
    found.score = pulled_back(front, differentiable ? slope : slope.detach());
    for (auto* const affine : front) along = affine->linear(along);
  }
  if (!slope.requires_grad()) return found;  // a score that is the same everywhere
  std::vector<Tensor> curvatures;
  for (int64_t k = 0; k < along.size(0); ++k) {
    const bool again = differentiable || k + 1 < along.size(0);
    const auto change = torch::autograd::grad({(slope * along[k]).sum()}, {point}, {}, again, differentiable, true)[0];
    const torch::AutoGradMode with_graph(differentiable);
    curvatures.push_back(change.defined() ? (change * along[k]).flatten(static_cast<int64_t>(batch.size())).sum(-1)
                                          : found.curvatures[k]);
  }
  const torch::AutoGradMode with_graph(differentiable);
  found.curvatures = torch::stack(curvatures);
  return found;
}

Tensor Energy::energies_around(const Tensor& x, const Tensor& step, const Tensor& context) {
  auto here = x, move = step;
  const auto front = affine_front();
  for (auto* const affine : front) {
    // In one batch, so that a product reads its matrix once.
    const auto mapped = affine->linear(torch::stack({here, move})).unbind();
    here = affine->offset().defined() ? mapped[0] + affine->offset() : mapped[0];
    move = mapped[1];
  }
  auto inner = inner_context(x, context);
  if (inner.defined()) {
    auto sizes = inner.sizes().vec();
    sizes.insert(sizes.begin(), 3);
    inner = inner.expand(sizes);
  }
  return energy_after(first_ + front.size(), torch::stack({here + move, here - move, here}), inner);
}

Tensor Energy::log_normaliser() {
  const TrainingGuard looks_only(*flow_, false);  // ActNorm would set itself from a point that is nobody's
  ConstantLogDetGuard constants(ConstantLogDetGuard::Mode::collect);
  auto point = some_point(space(), flow_->tensor_options());
  Tensor context;
  if (flow_->context_size() > 0) context = flow_->embedded(torch::zeros({flow_->context_size()}, point.options()));
  for (size_t i = first_; i < layers().size(); ++i)
    point = layers()[i]->forward(point, context_for(*layers()[i], context)).value;
  return constants.collected().defined() ? -constants.collected() : torch::zeros({}, point.options());
}

Tensor Energy::enter(const Tensor& data, const Tensor& context) {
  const ConstantLogDetGuard without_constants;
  const auto inner = flow_->embedded(context);
  auto point = data;
  for (size_t i = 0; i < first_; ++i) point = layers()[i]->forward(point, context_for(*layers()[i], inner)).value;
  return point;
}

Tensor Energy::leave(const Tensor& x, const Tensor& context) {
  const ConstantLogDetGuard without_constants;
  const auto inner = flow_->embedded(context);
  auto point = x;
  for (size_t i = first_; i-- > 0;) point = layers()[i]->inverse(point, context_for(*layers()[i], inner)).value;
  return point;
}

Tensor Energy::draw(int64_t n, const Tensor& context) {
  torch::NoGradGuard no_grad;
  const ConstantLogDetGuard without_constants;
  const auto inner = flow_->embedded(context);
  auto point = flow_->base()->draw({n}, flow_->base()->context_size() > 0 ? inner : Tensor()).value;
  for (size_t i = layers().size(); i-- > first_;)
    point = layers()[i]->inverse(point, context_for(*layers()[i], inner)).value;
  return point;
}

int64_t fixed_layers(const Flow& flow) {
  const auto& layers = layers_of(flow);
  int64_t count = 0;
  while (count < static_cast<int64_t>(layers.size()) && layers[count]->parameters().empty()) ++count;
  return count;
}

}  // namespace diffeo
