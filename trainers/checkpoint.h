#pragma once

#include "diffeo/trainers/fit.h"

namespace diffeo {

// A run in progress lives in the model file itself: a flow to use (the best state so far, or the current one while
// there is none) together with all that is needed to go on.

/// Puts the state of a run whose objective, or one that it wraps, holds its flow as the child `flow` into a model file
/// that has its spec.
void put_training(ModelFile& model, const TrainingState& state, const Json& history);

/// What `put_training` put there. Throws Error naming `where` if the file holds no run to go on with.
TrainingState training_in(const ModelFile& model, const std::string& where);

}  // namespace diffeo
