#pragma once

#include "diffeo/data/dataset.h"
#include "diffeo/flows/flow.h"

namespace diffeo {

/// Turns a batch into the scalar to minimise. All that must learn is its child.
///
/// To add one that trains a flow, give it an Options that describes its fields and a constructor (FlowPtr, Options),
/// register the flow as its child `flow`, and write DIFFEO_OBJECTIVE at the bottom of its source file.
class Objective : public Module {
 public:
  /// A scalar, in nats where it is a likelihood. `weight` of the batch, where given, weighs its rows: a row of weight 2
  /// counts as two rows, one of weight 0 as none. Randomness comes from torch's default generator. It is called with
  /// gradients disabled in evaluations; an objective that differentiates by its inputs enables them itself.
  virtual Tensor loss(const Batch& batch) = 0;
};

using ObjectivePtr = std::shared_ptr<Objective>;

/// How the program and the docs know an objective that trains a flow.
struct ObjectiveEntry {
  std::string name;     ///< the "type" of its specs
  std::string summary;  ///< one sentence, with the paper
  std::vector<FieldHelp> fields;
  std::function<ObjectivePtr(const Json& spec, FlowPtr flow)> build;
  bool draws_own_points = false;  ///< reads no data: a batch only says how many points to draw (no_data)
};

/// Every registered objective, in alphabetical order.
const std::vector<const ObjectiveEntry*>& all_objectives();

/// The objective that the "type" of a spec names. Throws SpecError with the known names.
const ObjectiveEntry& find_objective(const Json& spec);

/// Builds `{"type": name, ...options}` for a flow. Throws SpecError naming the place and the known names or keys, Error
/// for a flow that it cannot train.
ObjectivePtr build_objective(const Json& spec, FlowPtr flow);

/// An ObjectiveEntry for a class with a Described Options and a constructor (FlowPtr, Options). A class that reads no
/// data says so: `static constexpr bool draws_own_points = true`.
template <class Made>
ObjectiveEntry objective_entry(std::string name, std::string summary) {
  return {std::move(name), std::move(summary), describe<typename Made::Options>(),
          [](const Json& spec, FlowPtr flow) -> ObjectivePtr {
            return std::make_shared<Made>(std::move(flow), read<typename Made::Options>(spec));
          },
          [] {
            if constexpr (requires { Made::draws_own_points; }) return Made::draws_own_points;
            return false;
          }()};
}

/// Minus the mean (weighted) log likelihood of a flow, in nats, or its bound by one draw where the flow has random
/// layers (learned dequantisation); in training with the penalties that its layers ask for (penalty.h), as bits per
/// dimension plus `penalty` times their sum would have them.
class MaximumLikelihood : public Objective {
 public:
  struct Options {
    double penalty = 1e-3;
    static constexpr auto fields() {
      return std::tuple{optional("penalty", &Options::penalty,
                                 "weight of what layers ask for besides the likelihood (eiw_shuffle), in training, in "
                                 "bits per dimension; 0: none")};
    }
  };

  explicit MaximumLikelihood(FlowPtr flow);
  /// Throws SpecError for a negative penalty.
  MaximumLikelihood(FlowPtr flow, const Options& options);
  Tensor loss(const Batch& batch) override;

 private:
  FlowPtr flow_;
  Options options_;
};

/// The mean of `values` (B), weighted by `weight` (B) where it is defined. Values of weight 0 may be anything.
Tensor weighted_mean(const Tensor& values, const Tensor& weight);

}  // namespace diffeo

/// Registers an objective that trains a flow, as DIFFEO_LAYER does a layer.
#define DIFFEO_OBJECTIVE(name, Class, summary)  \
  extern const ObjectiveEntry objective_##name; \
  const ObjectiveEntry objective_##name = objective_entry<Class>(#name, summary)
