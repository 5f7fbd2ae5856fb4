#pragma once

#include <optional>

#include "diffeo/trainers/fair/column_scales.h"
#include "diffeo/trainers/fair/densities.h"
#include "diffeo/trainers/fair/fair_objective.h"

namespace diffeo {

/// How encoders and classifier are trained.
struct FairTraining {
  FairFlow::Options model;
  FairObjective::Options objective;
  FitOptions fit;
  int64_t restarts = 1;
};

/// What training gave.
struct FairFit {
  FairFlowPtr model;
  double objective = 0;            ///< of the model: the best on validation rows, else the last running mean; nats
  std::vector<double> objectives;  ///< of each restart
  FitReport report;                ///< of the restart that was kept
};

/// Called before each restart begins.
using RestartHook = std::function<void(int64_t restart)>;

/// Trains encoders and a classifier from `restarts` beginnings (seeds fit.seed, fit.seed + 1, ...) and keeps the one
/// with the smallest objective: some beginnings end where groups are laid on each other the wrong way round.
/// With `scales`, the x of the rows are places (column_scales.h), else points. `valid` may have no rows. Ends early,
/// with the best so far, where hooks.stop says so. Throws Error for a group or, where the criterion asks for it, a
/// label without rows, and as FairObjective does.
FairFit fit_fair(const FairRows& train, const FairRows& valid, const GroupDensities& densities,
                 const FairTraining& training, const std::optional<ColumnScales>& scales = std::nullopt,
                 const FitHooks& hooks = {}, const RestartHook& before_restart = {});

/// Throws Error unless groups are 0 to K - 1, labels 0 and 1, and every group has rows of every label asked for
/// (-1: any). `where` names the rows. Returns K, at least 2.
int64_t check_fair_rows(const Tensor& group, const Tensor& label, const std::vector<int64_t>& labels,
                        const std::string& where);

}  // namespace diffeo
