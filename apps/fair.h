#pragma once

#include "diffeo/apps/subcommands.h"
#include "diffeo/trainers/fair/fair_model.h"

namespace diffeo::apps {

int fair_train(const Arguments& arguments);
int fair_encode(const Arguments& arguments);
int fair_certify(const Arguments& arguments);

/// A model file with the rows of a data file that has the same objects and columns as the training data.
struct FairInputs {
  FairModel model;
  ModelFile file;
  Splits splits;
  FairRows train, valid, test;  ///< raw values, in the dtype asked for
};
/// Throws Error naming file and object.
FairInputs read_fair_inputs(const std::string& model_file, const std::string& data_file, torch::Dtype dtype);

}  // namespace diffeo::apps
