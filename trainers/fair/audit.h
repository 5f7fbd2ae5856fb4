#pragma once

#include "diffeo/trainers/fair/cells.h"
#include "diffeo/trainers/fair/certificate.h"
#include "diffeo/trainers/fair/densities.h"

namespace diffeo {

/// How a representation is examined.
struct AuditOptions {
  int64_t samples = 20000;
  double confidence = 0.99;
  int64_t adversary_steps = 2000;
  static constexpr auto fields() {
    using O = AuditOptions;
    return std::tuple{optional("samples", &O::samples, "draws of each group's density for the certificate"),
                      optional("confidence", &O::confidence, "of the upper end of the bound, between 0 and 1"),
                      optional("adversary_steps", &O::adversary_steps, "training steps of each adversary")};
  }
};

/// What an adversary reached on rows that it had not seen.
struct AdversaryScore {
  std::string name;
  double accuracy = 0;   ///< balanced
  double deviation = 0;  ///< standard error of it
};

/// The groups of one label (-1: all rows).
struct StratumAudit {
  int64_t label = -1;
  Certificate certificate;               ///< on draws of the densities
  double weighted_delta = 0;             ///< a second estimate, for two groups; else NaN
  std::vector<AdversaryScore> on_draws;  ///< on draws of the densities, for which the certificate holds
  std::vector<AdversaryScore> on_rows;   ///< on real rows, for which it holds as far as the densities are right
  double gap = 0;  ///< largest difference between groups in the share of held-out rows that the task's classifier gives
                   ///< the label 1; for two groups Delta bounds it, as far as the densities are right
};

struct Audit {
  std::vector<StratumAudit> strata;
  double task_accuracy = 0;   ///< on held-out rows, of a classifier trained on the representations
  double task_deviation = 0;  ///< standard error of it
  double head_accuracy = 0;   ///< of the classifier trained with the encoders; NaN where there is none
};

/// Two networks of different sizes that learn to tell the groups of rows apart, each group weighing the same, and their
/// scores on `test`. `valid` may have no rows.
std::vector<AdversaryScore> attack(const FairRows& train, const FairRows& valid, const FairRows& test, int64_t groups,
                                   int64_t steps, uint64_t seed);

/// Sets accuracy of the task and the gap between groups in each stratum: a classifier learns the label on
/// representations.
void judge_task(const FairSplits& rows, int64_t groups, uint64_t seed, Audit& audit);

/// Certificate, adversaries and accuracy of a model; rows are points of the model's space. `labels` are the strata of
/// the densities.
Audit examine(FairFlow& model, const GroupDensities& densities, const std::vector<int64_t>& labels,
              const FairSplits& points, const AuditOptions& options, uint64_t seed);

/// The same of a matching of cells; the x of the rows are cells (n), int64. The certificate is exact for the
/// probabilities of the cells.
Audit examine_cells(const Cells& cells, const CellMatching& matching, double gamma, const FairSplits& rows,
                    const AuditOptions& options, uint64_t seed);

}  // namespace diffeo
