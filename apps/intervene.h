#pragma once

#include "diffeo/apps/study.h"
#include "diffeo/apps/subcommands.h"
#include "diffeo/trainers/interventional/model.h"

namespace diffeo::apps {

// The actions of `diffeo intervene`.
int intervene_train(const Arguments& arguments);
int intervene_density(const Arguments& arguments);
int intervene_sample(const Arguments& arguments);
int intervene_effects(const Arguments& arguments);

/// A model of `diffeo intervene train` with its file.
struct StoredIntervention {
  ModelFile file;
  InterventionalModelPtr model;
};
/// Throws Error naming the file if it is none.
StoredIntervention read_intervention(const std::string& path);

/// Places of the treatments that --do names; all for an empty list. Throws Error naming the known ones.
std::vector<int64_t> places_of(const InterventionalModel& model, const std::vector<int64_t>& treatments);

/// The place of an outcome named by `--column`; 0 for an empty name.
int64_t outcome_column(const ModelFile& file, const std::string& name);

}  // namespace diffeo::apps
