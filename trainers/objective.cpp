#include "diffeo/trainers/objective.h"

#include <limits>

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

MaximumLikelihood::MaximumLikelihood(FlowPtr flow, const Options&) : flow_(register_module("flow", std::move(flow))) {
  check(!flow_->injective(),
        "maximum_likelihood: an injective flow gives points off its manifold no density; train it by "
        "free_form_injective, with volume=exact for maximum likelihood on the manifold");
}

Tensor MaximumLikelihood::loss(const Batch& batch) {
  return -weighted_mean(flow_->log_prob(batch.x, batch.context), batch.weight);
}

DIFFEO_OBJECTIVE(maximum_likelihood, MaximumLikelihood, "Minus the mean log-likelihood, in nats.");

}  // namespace diffeo
