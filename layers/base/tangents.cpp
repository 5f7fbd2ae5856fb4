#include "diffeo/layers/base/tangents.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_cholesky_ex.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <limits>

namespace diffeo {
namespace {

/// Pushed tangents, K times rows, that are worked on at a time where nothing is kept.
constexpr int64_t tangents_at_a_time = 1 << 14;

Tensor expanded(const Tensor& tangents, const Tensor& points) {
  auto shape = points.sizes().vec();
  shape.insert(shape.begin(), tangents.size(0));
  return tangents.expand(shape);
}

/// J v as the derivative by u of v^T (J^T u).
Pushed push_by_reverse(const std::function<Tensor(const Tensor& points)>& map, const Tensor& points,
                       const Tensor& tangents) {
  const bool differentiable = at::GradMode::is_enabled();
  const at::AutoGradMode enabled(true);
  // A copy for each tangent: one pass of the layer serves all.
  const auto all = expanded(tangents, points);
  auto copies = points.unsqueeze(0).expand(all.sizes());
  if (!differentiable || !copies.requires_grad()) copies = copies.detach().clone().requires_grad_();
  const auto value = map(copies);
  const auto dual = at::zeros_like(value).requires_grad_();
  const auto by_points = torch::autograd::grad({value}, {copies}, {dual}, true, true)[0];
  const auto pushed = torch::autograd::grad({by_points}, {dual}, {all}, differentiable, differentiable)[0];
  return {differentiable ? value[0] : value[0].detach(), pushed};
}

Tensor flat(const Tensor& t, int64_t event_dimensions) {
  return t.defined() ? t.flatten(0, t.dim() - event_dimensions - 1) : t;
}

}  // namespace

Tensor forward_value(Layer& layer, const Tensor& x, const Tensor& context) {
  if (auto* own = dynamic_cast<CarriesTangents*>(&layer)) return own->forward_value(x, context);
  return layer.forward(x, context).value;
}

Tensor inverse_value(Layer& layer, const Tensor& y, const Tensor& context) {
  if (auto* own = dynamic_cast<CarriesTangents*>(&layer)) return own->inverse_value(y, context);
  return layer.inverse(y, context).value;
}

Pushed push_forward(Layer& layer, const Tensor& x, const Tensor& tangents, const Tensor& context) {
  if (auto* own = dynamic_cast<CarriesTangents*>(&layer)) return own->push_forward(x, expanded(tangents, x), context);
  return push_by_reverse([&](const Tensor& points) { return layer.forward(points, context).value; }, x, tangents);
}

Pushed push_inverse(Layer& layer, const Tensor& y, const Tensor& tangents, const Tensor& context) {
  if (auto* own = dynamic_cast<CarriesTangents*>(&layer)) return own->push_inverse(y, expanded(tangents, y), context);
  return push_by_reverse([&](const Tensor& points) { return layer.inverse(points, context).value; }, y, tangents);
}

Tensor unit_tangents(const Tensor& points) {
  const auto d = points.size(-1);
  auto shape = std::vector<int64_t>(points.dim() + 1, 1);
  shape.front() = shape.back() = d;
  return expanded(at::eye(d, points.options().requires_grad(false)).view(shape), points);
}

Tensor half_log_gram(const Tensor& tangents, int64_t event_dimensions) {
  const auto columns = tangents.flatten(-event_dimensions).movedim(0, -2).to(torch::kFloat64);  // (*batch, d, D)
  auto gram = columns.matmul(columns.transpose(-1, -2));
  // A singular map has no volume; a finite number far below any other keeps gradients finite.
  const auto diagonal = gram.diagonal(0, -2, -1);
  const auto least = 1e-15 * diagonal.mean(-1, true).detach() + 1e-200;
  gram = gram + at::eye(gram.size(-1), gram.options()) * least.unsqueeze(-1);
  const auto root = std::get<0>(at::linalg_cholesky_ex(gram));
  return root.diagonal(0, -2, -1).clamp_min(1e-150).log().sum(-1).to(tangents.scalar_type());
}

Mapped with_volume(const std::function<Pushed(const Tensor& z, const Tensor& tangents, const Tensor& context)>& push,
                   const Tensor& z, const Tensor& context) {
  const auto piece = [&](const Tensor& points, const Tensor& contexts) -> Mapped {
    const auto [value, tangents] = push(points, unit_tangents(points), contexts);
    return {value, half_log_gram(tangents, value.dim() - points.dim() + 1)};
  };
  const auto d = z.size(-1);
  const auto rows = z.numel() / d, at_a_time = std::max<int64_t>(1, tangents_at_a_time / d);
  if (at::GradMode::is_enabled() || rows <= at_a_time) return piece(z, context);
  const auto points = flat(z, 1), contexts = flat(context, 1);
  std::vector<Tensor> values, volumes;
  for (int64_t first = 0; first < rows; first += at_a_time) {
    const auto count = std::min(at_a_time, rows - first);
    const auto [value, volume] =
        piece(points.narrow(0, first, count), contexts.defined() ? contexts.narrow(0, first, count) : contexts);
    values.push_back(value);
    volumes.push_back(volume);
  }
  const auto batch = z.sizes().slice(0, z.dim() - 1);
  auto shape = batch.vec();
  const auto event = values[0].sizes().slice(1);
  shape.insert(shape.end(), event.begin(), event.end());
  return {at::cat(values).view(shape), at::cat(volumes).view(batch)};
}

Mapped InjectiveLayer::map(const Tensor& x, const Tensor& context) {
  const auto z = forward_value(x, context);
  return {z, -unmap(z, context).log_det};
}

Mapped InjectiveLayer::unmap(const Tensor& y, const Tensor& context) {
  return with_volume(
      [&](const Tensor& z, const Tensor& tangents, const Tensor& given) { return push_inverse(z, tangents, given); }, y,
      context);
}

int64_t checked_latent(int64_t latent, int64_t features) {
  at_least(1, "latent", latent);
  if (latent >= features)
    throw SpecError("latent", c10::str("must be below the ", features, " features, got ", latent,
                                       "; a flow of as many dimensions as the data needs no injective layer"));
  return latent;
}

}  // namespace diffeo
