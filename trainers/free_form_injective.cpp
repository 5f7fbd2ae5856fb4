#include "diffeo/trainers/free_form_injective.h"

#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "diffeo/layers/base/ranges.h"

namespace diffeo {
namespace {

/// Rows of a batch whose volume is computed exactly in an evaluation.
constexpr int64_t rows_for_volume = 64;

Tensor context_for(const Layer& layer, const Tensor& context) { return layer.context_size() > 0 ? context : Tensor(); }

}  // namespace

FreeFormInjective::FreeFormInjective(FlowPtr flow, const Options& options)
    : flow_(register_module("flow", std::move(flow))), options_(options) {
  check(
      flow_->injective(),
      "free_form_injective: the flow has no injective layer; train it by maximum_likelihood, or take a flow onto fewer "
      "dimensions (--flow injective --latent d)");
  check_choice("volume", options.volume, {"off_manifold", "on_manifold", "exact"});
  above_zero("beta", options.beta);
  not_negative("noise", options.noise);
  at_least(0, "warmup_steps", options.warmup_steps);
  latent_ = flow_->layers()->codomain().size();
  at_least(1, "probes", options.probes);
  if (options.probes > latent_)
    throw SpecError("probes", c10::str("must be at most the latent dimension ", latent_, ", got ", options.probes));

  const auto& layers = static_cast<const Sequential&>(*flow_->layers()).layers();
  size_t first = 0;
  const auto full = [&](const Layer& layer) { return layer.domain().size() == layer.codomain().size(); };
  while (layers[first]->parameters().empty() && full(*layers[first])) front_.push_back(layers[first++]);
  core_ =
      std::make_shared<Sequential>(std::vector<LayerPtr>(layers.begin() + static_cast<int64_t>(first), layers.end()));
  if (first + 1 == layers.size()) only_ = std::dynamic_pointer_cast<FreeForm>(layers.back());
  if (options.warmup_steps > 0) steps_ = register_buffer("steps", at::zeros({}, torch::kInt64));
}

Tensor FreeFormInjective::probes_for(const Tensor& x) const {
  const auto root = std::sqrt(static_cast<double>(latent_));
  const auto batch = x.size(0);
  // A whole basis leaves nothing to chance.
  if (options_.probes == latent_) return root * unit_tangents(x.new_empty({batch, latent_}));
  if (options_.probes == 1) {
    const auto v = at::randn({1, batch, latent_}, x.options());
    return v * (root / v.norm(2, -1, true).clamp_min(1e-12));
  }
  const auto gaussian = at::randn({batch, latent_, options_.probes}, x.options());
  return root * std::get<0>(at::linalg_qr(gaussian)).permute({2, 0, 1}).contiguous();
}

FreeFormInjective::Terms FreeFormInjective::training_terms(const Tensor& x, const Tensor& context) {
  const auto given = context_for(*core_, context);
  if (options_.volume == "exact") {
    const auto [z, log_det] = core_->forward(x, given);
    return {z, core_->inverse_value(z, given), -log_det};
  }
  const auto probes = probes_for(x);
  const auto surrogate = [&](const Tensor& carried) { return -(probes * carried).sum(-1).mean(0); };
  if (only_ && options_.volume == "off_manifold") {
    const auto [latent, reconstruction, carried] = only_->round_trip(x, probes);
    return {latent, reconstruction, surrogate(carried)};
  }
  const auto z = core_->forward_value(x, given), reconstruction = core_->inverse_value(z, given);
  Tensor tangents;
  {
    torch::NoGradGuard fixed;
    tangents = core_->push_inverse(z.detach(), probes, given).tangents;
  }
  const auto& at = options_.volume == "on_manifold" ? reconstruction : x;
  return {z, reconstruction, surrogate(core_->push_forward(at, tangents, given).tangents)};
}

Tensor FreeFormInjective::validation_volume(const Tensor& x, const Tensor& context, const Tensor& weight) {
  // Evenly spread over the batch.
  const auto step = (x.size(0) + rows_for_volume - 1) / rows_for_volume;
  const auto some = [&](const Tensor& t) { return t.defined() ? t.slice(0, 0, t.size(0), step) : t; };
  return -weighted_mean(core_->forward(some(x), some(context)).log_det, some(weight));
}

Tensor FreeFormInjective::loss(const Batch& batch) {
  auto x = batch.x;
  const auto context = flow_->embedded(batch.context);  // as layers and base take it
  for (const auto& layer : front_) x = forward_value(*layer, x, context_for(*layer, context));
  if (options_.noise > 0 && is_training()) x = x + options_.noise * at::randn_like(x);
  const auto for_base = flow_->base()->context_size() > 0 ? context : Tensor();
  const auto total = [&](const Terms& terms) {
    const auto likelihood = terms.volume - flow_->base()->log_prob(terms.latent, for_base);
    const auto distance = (x - terms.reconstruction).square().sum(-1);
    return std::pair{likelihood, options_.beta * distance};
  };
  if (!is_training()) {
    const auto given = context_for(*core_, context);
    const auto z = core_->forward_value(x, given);
    const auto [likelihood, distance] = total({z, core_->inverse_value(z, given), z.new_zeros({})});
    return weighted_mean(likelihood + distance, batch.weight) + validation_volume(x, given, batch.weight);
  }
  auto [likelihood, distance] = total(training_terms(x, context));
  if (steps_.defined()) {
    steps_.add_(1);
    likelihood = likelihood * (steps_.to(x.scalar_type()) / static_cast<double>(options_.warmup_steps)).clamp_max(1);
  }
  return weighted_mean(likelihood + distance, batch.weight);
}

DIFFEO_OBJECTIVE(free_form_injective, FreeFormInjective,
                 "Likelihood on an injective flow's manifold and distance to it (Sorrenson et al. 2024).");

}  // namespace diffeo
