#include "diffeo/layers/base/layer.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/zeros_like.h>

#include "diffeo/layers/base/constant_log_det_guard.h"
#include "diffeo/layers/base/score.h"
#include "diffeo/layers/base/training_guard.h"

namespace diffeo {

Traits operator&(const Traits& a, const Traits& b) {
  return {.closed_forward = a.closed_forward && b.closed_forward,
          .closed_inverse = a.closed_inverse && b.closed_inverse,
          .quick_forward = a.quick_forward && b.quick_forward,
          .quick_inverse = a.quick_inverse && b.quick_inverse,
          .exact_log_det = a.exact_log_det && b.exact_log_det,
          .constant_log_det = a.constant_log_det && b.constant_log_det,
          .random = a.random || b.random,
          .injective = a.injective || b.injective};
}

Layer::Layer(Space domain, Space codomain, int64_t context_size)
    : domain_(std::move(domain)), codomain_(std::move(codomain)), context_size_(context_size) {
  check(context_size_ >= 0, "context must be at least 0, got ", context_size_);
}

Mapped Layer::forward(const Tensor& x, const Tensor& context) {
  const auto broadcast = checked(x, domain_, context);
  return leaves_out_log_det() ? without_log_det(x, broadcast, true) : map(x, broadcast);
}

Mapped Layer::inverse(const Tensor& y, const Tensor& context) {
  const auto broadcast = checked(y, codomain_, context);
  return leaves_out_log_det() ? without_log_det(y, broadcast, false) : unmap(y, broadcast);
}

bool Layer::leaves_out_log_det() const {
  return ConstantLogDetGuard::current() != nullptr && traits().constant_log_det;
}

Mapped Layer::without_log_det(const Tensor& points, const Tensor& context, bool forward) {
  auto& guard = *ConstantLogDetGuard::current();
  if (guard.mode() == ConstantLogDetGuard::Mode::collect) {
    Mapped mapped;
    {
      const ConstantLogDetGuard::Suspended all;
      mapped = forward ? map(points, context) : unmap(points, context);
    }
    guard.add(mapped.log_det);
    return {mapped.value, at::zeros_like(mapped.log_det)};
  }
  const auto& event = (forward ? domain_ : codomain_).event;
  const auto batch = points.sizes().slice(0, points.dim() - static_cast<int64_t>(event.size()));
  return {forward ? map_value(points, context) : unmap_value(points, context), points.new_zeros({}).expand(batch)};
}

Retraced Layer::retrace(const Tensor& y, const Tensor& context) {
  return unmap_and_map(y, checked(y, codomain_, context));
}

Retraced Layer::unmap_and_map(const Tensor& y, const Tensor& context) {
  Tensor x;
  {
    torch::NoGradGuard no_grad;
    x = unmap(y, context).value.detach().requires_grad_();
  }
  return {x, map(x, context)};
}

Scored Layer::forward_with_score(const Tensor& x, const Tensor& score, const Tensor& context) {
  return with_score(x, score, checked(x, domain_, context), Direction::forward);
}

Scored Layer::inverse_with_score(const Tensor& y, const Tensor& score, const Tensor& context) {
  return with_score(y, score, checked(y, codomain_, context), Direction::inverse);
}

Scored Layer::with_score(const Tensor& points, const Tensor& score, const Tensor& context, Direction direction) {
  const auto traits = this->traits();
  const auto who = [&] { return spec().value("type", std::string("layer")); };
  if (traits.random || traits.injective || !traits.exact_log_det)
    throw Error(c10::str(who(), ": carries no score: its log-determinant is ",
                         traits.random      ? "random"
                         : traits.injective ? "not that of a bijection"
                                            : "an estimate"));
  if (!score.defined() || score.sizes() != points.sizes() || score.scalar_type() != points.scalar_type())
    throw Error(c10::str(who(), ": expected a score like the points, ", points.scalar_type(), " ", points.sizes(),
                         ", got ", score.defined() ? c10::str(score.scalar_type(), " ", score.sizes()) : "none"));
  const bool with_graph = torch::GradMode::is_enabled();
  const torch::AutoGradMode for_derivatives(true);
  auto scored = carry_score(as_variable(points), score.detach(), context, direction);
  return {with_graph ? scored.value : scored.value.detach(), scored.log_det.detach(), scored.score.detach()};
}

Scored Layer::carry_score(const Tensor& points, const Tensor& score, const Tensor& context, Direction direction) {
  const auto promises = traits();
  const bool forward = direction == Direction::forward;
  const auto mapped = forward ? map(points, context) : unmap(points, context);
  const bool quick_back =
      forward ? promises.closed_inverse && promises.quick_inverse : promises.closed_forward && promises.quick_forward;
  if (!quick_back) return {mapped.value, mapped.log_det, score_by_jacobian(points, mapped, score)};
  // A layer may note or set something as it goes forward in training; the way back only looks.
  const TrainingGuard looks_only(*this, false);
  const auto way_back = [&](const Tensor& y) { return forward ? unmap(y, context) : map(y, context); };
  return {mapped.value, mapped.log_det, score_by_way_back(way_back, mapped.value, score)};
}

Tensor Layer::checked(const Tensor& points, const Space& space, const Tensor& context) const {
  const auto who = [&] { return spec().value("type", std::string("layer")); };
  check(points.defined(), "expected points of shape ", to_string(space), ", got an undefined tensor");
  const auto batch = points.dim() - static_cast<int64_t>(space.event.size());
  if (batch < 0 || points.sizes().slice(batch) != at::IntArrayRef(space.event))
    throw Error(c10::str(who(), ": expected points of shape ", to_string(space), ", got ", points.sizes()));
  const auto want = c10::typeMetaToScalarType(tensor_options().dtype());
  if (points.scalar_type() != want)
    throw Error(c10::str(who(), ": the layer computes in ", want, ", got points of ", points.scalar_type(),
                         "; convert one of them with .to(dtype)"));
  if (points.device().type() != tensor_options().device().type())
    throw Error(c10::str(who(), ": the layer is on ", tensor_options().device(), ", the points are on ",
                         points.device(), "; move one of them with .to(device)"));
  if (context.defined() && context.scalar_type() != want)
    throw Error(c10::str(who(), ": the layer computes in ", want, ", got a context of ", context.scalar_type(),
                         "; convert one of them with .to(dtype)"));
  if (!context.defined() && context_size_ == 0) return context;
  return checked_context(who(), context, context_size_, points.sizes().slice(0, batch));
}

Tensor checked_context(const std::string& who, const Tensor& context, int64_t size, at::IntArrayRef batch) {
  if (!context.defined()) {
    check(size == 0, who, ": a context of ", size, " values is required but none was given");
    return context;
  }
  check(size > 0, who, ": takes no context but one of shape ", context.sizes(), " was given");
  auto shape = batch.vec();
  shape.push_back(size);
  check(context.dim() > 0 && context.size(-1) == size && at::is_expandable_to(context.sizes(), shape), who,
        ": expected a context of shape ", at::IntArrayRef(shape), " or one that broadcasts to it, got ",
        context.sizes());
  return context.expand(shape);
}

}  // namespace diffeo
