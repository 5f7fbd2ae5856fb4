#include "diffeo/samplers/distribution_density.h"

#include "diffeo/layers/base/error.h"
#include "diffeo/samplers/target.h"

namespace diffeo {

DistributionDensity::DistributionDensity(DistributionPtr distribution)
    : LogDensity(distribution->space()), distribution_(std::move(distribution)) {
  // What learns is another's: the parameters of a flow's base must not be in it twice.
  if (distribution_->parameters().empty()) {
    register_module("distribution", distribution_);
    const auto own = distribution_->tensor_options();
    Module::to(own.device(), c10::typeMetaToScalarType(own.dtype()));
  }
  check(distribution_->context_size() == 0, "a density to move at takes no context, this distribution one of ",
        distribution_->context_size(), " values");
}

LogDensityPtr build_log_density(const Json& spec) {
  const auto is_distribution = [&](const auto* entry) { return spec.value("type", Json()) == entry->name; };
  const auto& distributions = all_distributions();
  if (spec.is_object() && std::any_of(distributions.begin(), distributions.end(), is_distribution)) {
    auto distribution = build_distribution(spec);
    check(distribution->parameters().empty(), "a density to move at cannot learn; give it \"trainable\": false");
    return std::make_shared<DistributionDensity>(std::move(distribution));
  }
  return build_target(spec);
}

}  // namespace diffeo
