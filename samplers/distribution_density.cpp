#include "diffeo/samplers/distribution_density.h"

#include "diffeo/layers/base/error.h"
#include "diffeo/samplers/target.h"

namespace diffeo {

DistributionDensity::DistributionDensity(DistributionPtr distribution)
    : LogDensity(distribution->space()), distribution_(register_module("distribution", std::move(distribution))) {
  check(distribution_->context_size() == 0, "a density to move at takes no context, this distribution one of ",
        distribution_->context_size(), " values");
}

LogDensityPtr build_log_density(const Json& spec) {
  const auto is_distribution = [&](const auto* entry) { return spec.value("type", Json()) == entry->name; };
  const auto& distributions = all_distributions();
  if (spec.is_object() && std::any_of(distributions.begin(), distributions.end(), is_distribution))
    return std::make_shared<DistributionDensity>(build_distribution(spec));
  return build_target(spec);
}

}  // namespace diffeo
