#pragma once

#include <optional>

#include "diffeo/layers/base/options.h"

namespace diffeo {

/// The learning rate over a run: a linear warm-up, then
///
///   constant   r
///   cosine     r (1 + cos(pi t / T)) / 2, with t steps done of the T after the warm-up (Loshchilov & Hutter 2017,
///              https://arxiv.org/abs/1608.03983, eq. 5, without restarts)
///   plateau    r / 10^k, where k counts the times that `patience` evaluations in a row were without a new best
class Schedule {
 public:
  struct Options {
    std::string schedule = "cosine";
    double learning_rate = 1e-3;
    int64_t warmup_steps = 0;
    int64_t total_steps = 0;  ///< of the whole run, warm-up included; 0 if not known
    int64_t patience = 5;     ///< of the plateau, in evaluations
  };

  /// Throws SpecError for an unknown schedule, a rate that is not positive, a warm-up as long as the run.
  explicit Schedule(const Options& options);

  /// The learning rate of step `step` (from 0). `elapsed` is the fraction of the run that is over, which the cosine
  /// needs where the number of steps is not known.
  double rate(int64_t step, double elapsed = 0) const;
  /// Tells the plateau about an evaluation.
  void evaluated(double loss);

  Json state() const;
  /// Throws SpecError if `state` is not one that state() wrote.
  void load(const Json& state);

 private:
  Options options_;
  int64_t drops_ = 0, stuck_ = 0;
  std::optional<double> best_;
};

}  // namespace diffeo
