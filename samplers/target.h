#pragma once

#include <optional>

#include "diffeo/layers/base/log_density.h"
#include "diffeo/layers/base/registry.h"

namespace diffeo {

/// A density to draw samples from, known up to a constant.
class Target : public LogDensity {
 public:
  virtual std::string name() const = 0;
  /// The target as JSON, with every option: `build_target(spec())` makes the same one.
  virtual Json spec() const = 0;
  /// log of the integral of exp(log_prob), nats, where it is known: 0 for a normalised density.
  virtual std::optional<double> log_normalizer() const { return std::nullopt; }

 protected:
  using LogDensity::LogDensity;
};

using TargetPtr = std::shared_ptr<Target>;
using TargetEntry = Entry<Target>;

/// Every registered target, in alphabetical order.
const std::vector<const TargetEntry*>& all_targets();
/// Builds `{"type": name, ...options}`. Throws SpecError naming the place and the known names or keys.
TargetPtr build_target(const Json& spec);

}  // namespace diffeo

/// Registers a target, as DIFFEO_LAYER does a layer; `equation` is its log density.
#define DIFFEO_TARGET(name, Class, summary, equation, ...) \
  extern const TargetEntry target_##name;                  \
  const TargetEntry target_##name = entry<Target, Class>(#name, summary, equation, "", {__VA_ARGS__})
