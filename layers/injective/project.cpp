#include "diffeo/layers/injective/project.h"

#include <ATen/ops/constant_pad_nd.h>

#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

Tensor no_volume(const Tensor& points) { return points.new_zeros(points.sizes().slice(0, points.dim() - 1)); }

}  // namespace

Project::Project(const Options& options)
    : InjectiveLayer(at_least(2, "features", options.features), checked_latent(options.latent, options.features)),
      options_(options) {}

Tensor Project::forward_value(const Tensor& x, const Tensor&) { return x.narrow(-1, 0, options_.latent); }

Tensor Project::inverse_value(const Tensor& y, const Tensor&) {
  return at::constant_pad_nd(y, {0, options_.features - options_.latent});
}

Pushed Project::push_forward(const Tensor& x, const Tensor& tangents, const Tensor& context) {
  return {forward_value(x, context), forward_value(tangents, context)};
}

Pushed Project::push_inverse(const Tensor& y, const Tensor& tangents, const Tensor& context) {
  return {inverse_value(y, context), inverse_value(tangents, context)};
}

Mapped Project::map(const Tensor& x, const Tensor& context) { return {forward_value(x, context), no_volume(x)}; }
Mapped Project::unmap(const Tensor& y, const Tensor& context) { return {inverse_value(y, context), no_volume(y)}; }

DIFFEO_LAYER(project, Project,
             "Keeps the first d of D features; the inverse pads with zeros (Brehmer and Cranmer 2020; Caterini et al. "
             "2021).",
             "z = (x_1 ... x_d), x = (z, 0); log_det = 0", "forward and inverse: D",
             {"plane", {{"features", 4}, {"latent", 2}}}, {"line", {{"features", 3}, {"latent", 1}}});

}  // namespace diffeo
