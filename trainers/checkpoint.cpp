#include "diffeo/trainers/checkpoint.h"

namespace diffeo {
namespace {

NamedTensors under(const NamedTensors& tensors, const std::string& prefix) {
  NamedTensors found;
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with(prefix)) found.emplace_back(name.substr(prefix.size()), tensor);
  return found;
}

/// The tensors of the flow among those under `place`: it is the child `flow` of the objective, or of the objective that
/// the objective wraps.
NamedTensors flow_in(const TrainingState& state, std::string place) {
  for (auto found = under(state.tensors, place); !found.empty(); found = under(state.tensors, place += "objective."))
    if (auto flow = under(found, "flow."); !flow.empty()) return flow;
  return {};
}

}  // namespace

void put_training(ModelFile& model, const TrainingState& state, const Json& history) {
  model.state = flow_in(state, "best/");
  if (model.state.empty()) model.state = flow_in(state, "current/");
  model.history = history;
  model.training = state.scalars;
  model.training_state = state.tensors;
}

TrainingState training_in(const ModelFile& model, const std::string& where) {
  check(model.training.is_object(), where,
        ": holds a finished model without the state of its training, so there is nothing "
        "to go on with; leave out --resume to train anew");
  return {model.training, model.training_state};
}

}  // namespace diffeo
