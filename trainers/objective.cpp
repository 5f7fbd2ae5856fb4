#include "diffeo/trainers/objective.h"

#include <cmath>
#include <limits>

#include "diffeo/layers/base/penalty.h"

namespace diffeo {

Tensor weighted_mean(const Tensor& values, const Tensor& weight) {
  if (!weight.defined()) return values.mean();
  const auto total = (values * weight).masked_fill(weight == 0, 0).sum();
  return total / weight.sum().clamp_min(std::numeric_limits<float>::min());
}

const ObjectiveEntry& find_objective(const Json& spec) {
  if (!spec.is_object() || !spec.contains("type") || !spec["type"].is_string())
    throw SpecError("", "expected an object with a \"type\" that names an objective, got " + spec.dump());
  std::vector<std::string> known;
  for (const auto* entry : all_objectives()) {
    if (entry->name == spec["type"]) return *entry;
    known.push_back(entry->name);
  }
  const auto name = spec["type"].get<std::string>();
  throw SpecError("type", c10::str("unknown objective '", name, "'", suggestion(name, known), "; known are ",
                                   c10::Join(", ", known)));
}

ObjectivePtr build_objective(const Json& spec, FlowPtr flow) {
  return find_objective(spec).build(spec, std::move(flow));
}

MaximumLikelihood::MaximumLikelihood(FlowPtr flow) : MaximumLikelihood(std::move(flow), Options{}) {}

MaximumLikelihood::MaximumLikelihood(FlowPtr flow, const Options& options)
    : flow_(register_module("flow", std::move(flow))), options_(options) {
  if (!(options.penalty >= 0)) throw SpecError("penalty", c10::str("must not be negative, got ", options.penalty));
  check(!flow_->injective(),
        "maximum_likelihood: an injective flow gives points off its manifold no density; train it by "
        "free_form_injective, with volume=exact for maximum likelihood on the manifold");
}

Tensor MaximumLikelihood::loss(const Batch& batch) {
  const auto unlikelihood = [&] {
    const bool random = flow_->layers()->traits().random;
    return -weighted_mean(
        random ? flow_->log_prob_bound(batch.x, batch.context) : flow_->log_prob(batch.x, batch.context), batch.weight);
  };
  if (!is_training() || options_.penalty == 0) return unlikelihood();
  const Penalties penalties;
  const auto loss = unlikelihood();
  if (!penalties.sum().defined()) return loss;
  return loss + options_.penalty * std::log(2.0) * static_cast<double>(flow_->space().size()) * penalties.sum();
}

DIFFEO_OBJECTIVE(maximum_likelihood, MaximumLikelihood, "Minus the mean log-likelihood, in nats.");

}  // namespace diffeo
