#include "diffeo/trainers/interventional/nuisance.h"

#include <torch/types.h>

#include "diffeo/layers/base/ranges.h"

#include "diffeo/data/numbers.h"

namespace diffeo {
namespace {

std::vector<double> deviations(const Tensor& values) {
  auto scale = numbers(values.to(torch::kFloat64).std(0, /*unbiased=*/false));
  for (auto& one : scale)
    if (!(one > 0)) one = 1;
  return scale;
}

/// A layer that maps each outcome with parameters made of the context and of the outcomes before it.
Json conditional(const Json& map, int64_t outcomes, int64_t context, const NuisanceOptions& options) {
  const Json net = {{"width", options.width}, {"depth", options.depth}, {"activation", options.activation}};
  return {{"type", outcomes > 1 ? "autoregressive" : "elementwise"},
          {"features", outcomes},
          {"context", context},
          {"map", map},
          {"net", net}};
}

Json outcome_spec(const StudyShape& shape, const NuisanceOptions& options) {
  const auto outcomes = shape.outcomes(), context = options.representation + shape.treatments;
  std::vector<Json> layers{
      {{"type", "standardize"}, {"features", outcomes}, {"shift", shape.outcome_shift}, {"scale", shape.outcome_scale}},
      conditional({{"type", "affine"}, {"cap", 5.0}}, outcomes, context, options)};
  if (options.bins > 0)
    layers.push_back(conditional({{"type", "rq_spline"}, {"bins", options.bins}, {"bound", options.bound}}, outcomes,
                                 context, options));
  return {{"type", "flow"}, {"layers", layers}, {"base", {{"type", "normal"}, {"features", outcomes}}}};
}

}  // namespace

StudyShape shape_of(const Study& study, int64_t treatments) {
  check_study(study, treatments);
  return {.treatments = treatments,
          .covariate_shift = numbers(study.covariates.to(torch::kFloat64).mean(0)),
          .covariate_scale = deviations(study.covariates),
          .outcome_shift = numbers(study.outcome.to(torch::kFloat64).mean(0)),
          .outcome_scale = deviations(study.outcome)};
}

Nuisance::Nuisance(const StudyShape& shape, const NuisanceOptions& options) : treatments_(shape.treatments) {
  at_least(1, "representation", options.representation);
  at_least(0, "bins", options.bins);
  check(shape.covariates() > 0 && shape.outcomes() > 0 && shape.treatments > 1,
        "nuisance: needs covariates, outcomes and at least two treatments, got ", shape.covariates(), ", ",
        shape.outcomes(), " and ", shape.treatments);
  covariate_shift_ = register_buffer("covariate_shift", torch::tensor(shape.covariate_shift, torch::kFloat32));
  covariate_scale_ = register_buffer("covariate_scale", torch::tensor(shape.covariate_scale, torch::kFloat32));
  outcome_scale_ = register_buffer("outcome_scale", torch::tensor(shape.outcome_scale, torch::kFloat32));
  const NetOptions hidden{
      .width = options.width, .depth = options.depth, .activation = options.activation, .init_scale = 1};
  representation_ = register_module("representation", build_net(hidden, shape.covariates(), 0, options.representation));
  const NetOptions head{.width = options.width, .depth = 1, .activation = options.activation};
  propensity_ = register_module("propensity", build_net(head, options.representation, 0, shape.treatments));
  outcome_ = register_module("outcome", build_flow(outcome_spec(shape, options)));
}

Tensor Nuisance::represent(const Tensor& covariates) {
  return representation_->forward((covariates - covariate_shift_) / covariate_scale_);
}

Tensor Nuisance::log_propensity(const Tensor& representation) {
  return propensity_->forward(representation).log_softmax(-1);
}

Tensor Nuisance::context(const Tensor& representation, const Tensor& treatment) const {
  return torch::cat({representation, torch::one_hot(treatment, treatments_).to(representation.dtype())}, -1);
}

NuisanceLikelihood::NuisanceLikelihood(NuisancePtr nuisance, const Options& options)
    : nuisance_(register_module("nuisance", std::move(nuisance))), options_(options) {
  not_negative("covariate_noise", options.covariate_noise);
  not_negative("outcome_noise", options.outcome_noise);
  not_negative("propensity_weight", options.propensity_weight);
}

Tensor NuisanceLikelihood::loss(const Batch& batch) {
  auto representation = nuisance_->represent(batch.context);
  const auto treatment = batch.label.to(torch::kInt64);
  const auto given = nuisance_->log_propensity(representation).gather(1, treatment.unsqueeze(1)).squeeze(1);
  auto outcome = batch.x;
  if (is_training() && options_.outcome_noise > 0)
    outcome = outcome + options_.outcome_noise * nuisance_->outcome_scale() * torch::randn_like(outcome);
  if (is_training() && options_.covariate_noise > 0)
    representation = representation + options_.covariate_noise * torch::randn_like(representation);
  const auto likelihood = nuisance_->outcome()->log_prob(outcome, nuisance_->context(representation, treatment));
  return -weighted_mean(likelihood + options_.propensity_weight * given, batch.weight);
}

}  // namespace diffeo
