#include "diffeo/layers/linear/orthogonal.h"

#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_matrix_exp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "diffeo/layers/base/registry.h"
#include "diffeo/layers/linear/householder.h"

namespace diffeo {
namespace {

int64_t reflections_of(const Orthogonal::Options& options) {
  const auto given = at_least(0, "reflections", options.reflections);
  return given > 0 ? given : options.features - options.features % 2;
}

}  // namespace

Orthogonal::Orthogonal(const Options& options)
    : Layer(Space::reals(at_least(2, "features", options.features))), options_(options) {
  check_choice("kind", options.kind, {"householder", "exponential"});
  if (options.kind == "exponential") {
    if (options.reflections != 0) throw SpecError("reflections", "is only for kind householder, not exponential");
    skew_ = register_parameter("skew", at::zeros({options.features, options.features}));
    return;
  }
  // Two reflections by the same vector undo each other.
  const auto count = reflections_of(options);
  const auto pairs = at::randn({(count + 1) / 2, options.features}).repeat_interleave(2, 0);
  vectors_ = register_parameter("vectors", pairs.narrow(0, 0, count).clone());
}

Tensor Orthogonal::matrix() const {
  if (skew_.defined()) return at::linalg_matrix_exp(skew_ - skew_.t());
  return Reflections(vectors_.t()).times(at::eye(options_.features, vectors_.options()));
}

Mapped Orthogonal::map(const Tensor& x, const Tensor&) {
  return {at::matmul(x, matrix().t()), x.new_zeros(x.sizes().slice(0, x.dim() - 1))};
}

Mapped Orthogonal::unmap(const Tensor& y, const Tensor&) {
  return {at::matmul(y, matrix()), y.new_zeros(y.sizes().slice(0, y.dim() - 1))};
}

Scored Orthogonal::carry_score(const Tensor& points, const Tensor& score, const Tensor&, Direction direction) {
  // A score turns as the points do: the inverse of Q^T is Q.
  const auto turn = direction == Direction::forward ? matrix().t() : matrix();
  return {at::matmul(points, turn), points.new_zeros(points.sizes().slice(0, points.dim() - 1)),
          at::matmul(score, turn.detach())};
}

DIFFEO_LAYER(orthogonal, Orthogonal, "Orthogonal map as a product of reflections (Tomczak and Welling 2016).", "y = Q x with Q^T Q = 1, log|det| = 0", "D times the number of reflections, or D^2 for the exponential, both ways",
             {"householder", {{"features", 4}}}, {"odd", {{"features", 5}, {"reflections", 3}}},
             {"exponential", {{"features", 3}, {"kind", "exponential"}}});

}  // namespace diffeo
