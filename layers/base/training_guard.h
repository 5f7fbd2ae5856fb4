#pragma once

#include "diffeo/layers/base/module.h"

namespace diffeo {

/// A module in training or in evaluation mode for a scope, however the scope is left; afterwards it is told its own
/// mode again, and its children with it.
class TrainingGuard {
 public:
  TrainingGuard(torch::nn::Module& module, bool training) : module_(module), before_(module.is_training()) {
    if (training != before_) module_.train(training);
  }
  ~TrainingGuard() {
    if (module_.is_training() != before_) module_.train(before_);
  }
  TrainingGuard(const TrainingGuard&) = delete;
  TrainingGuard& operator=(const TrainingGuard&) = delete;

 private:
  torch::nn::Module& module_;
  bool before_;
};

}  // namespace diffeo
