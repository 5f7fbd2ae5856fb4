#include "diffeo/trainers/checkpoint.h"

namespace diffeo {
namespace {

NamedTensors under(const NamedTensors& tensors, const std::string& prefix) {
  NamedTensors found;
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with(prefix)) found.emplace_back(name.substr(prefix.size()), tensor);
  return found;
}

}  // namespace

void put_training(ModelFile& model, const TrainingState& state, const Json& history) {
  model.state = under(state.tensors, "best/flow.");
  if (model.state.empty()) model.state = under(state.tensors, "current/flow.");
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
