#pragma once

#include <torch/types.h>

#include "diffeo/apps/command.h"
#include "diffeo/data/splits.h"
#include "diffeo/trainers/objective.h"

// What `diffeo train` does where an objective has a target.
namespace diffeo::apps {

/// The spec of an objective, `NAME` or `NAME:key=value,...`, with a target in the same form, or none if `target` is
/// empty. Throws Error if the objective is unknown, takes no target, or has one already.
Json objective_spec(const std::string& objective, const std::string& target);

/// Throws Error if an option of the command line is about data, which an objective that draws its own points reads none
/// of.
void check_no_data_options(const Command& command, const std::string& objective, const std::string& file);

/// Rows of nothing for an objective that draws its own points: 100 batches to train, some thousands to validate, and a
/// column for each feature of the target.
Splits own_points(const Json& spec, int64_t batch_size);

/// Prints and returns how well a flow covers its target: effective sample size and log normalising constant from points
/// drawn from it.
Json compare_with_target(Flow& flow, const Json& spec);

}  // namespace diffeo::apps
