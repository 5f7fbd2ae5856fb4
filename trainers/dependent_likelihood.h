#pragma once

#include "diffeo/flows/row_dependence.h"
#include "diffeo/trainers/objective.h"

namespace diffeo {

/// Minus the mean log likelihood of rows that depend on each other: in training the flow's standard normal base is
/// replaced by one whose rows are correlated (RowDependence), so that what relatives share is not taken for many
/// independent observations. Evaluated, it is minus the mean log likelihood of new, unrelated rows: of the flow as it
/// is. Losses of different strengths are not comparable in training, those of evaluations are.
///
/// Kirchler, Lippert, Kloft 2023, https://arxiv.org/abs/2209.14933.
class DependentLikelihood : public Objective {
 public:
  struct Options {
    double strength = 0.5;
    std::string learn = "joint";
    int64_t turn_steps = 20;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{
          optional("strength", &O::strength, "of the dependence, 0 (none) to 0.99; where it is learned, at first"),
          optional("learn", &O::learn,
                   "no (the strength is fixed), joint (it is a parameter like the flow's) or turns (it is set to the "
                   "likeliest value at times, and the flow learns between them)"),
          optional("turn_steps", &O::turn_steps, "steps of the flow between two turns of the strength")};
    }
  };

  /// Labels of the rows are the numbers of their groups, and a batch holds its groups whole (in_whole_groups of
  /// whole_groups.h, or all rows). Throws SpecError for options out of range, Error for a flow whose base is not the
  /// fixed standard normal, which has no version with dependent rows.
  DependentLikelihood(FlowPtr flow, const Options& options);
  /// Labels of the rows are their places in `dependence`; batches are any. In turns, the strength is the likeliest one
  /// for all of `everything` (x, context and label), or for the batch where it has no x.
  DependentLikelihood(FlowPtr flow, const Options& options, RowDependencePtr dependence, Batch everything = {});

  /// Throws Error for batches without labels, or with weights.
  Tensor loss(const Batch& batch) override;
  /// That of the dependence now, in [0, 0.99].
  double strength() const;

 private:
  struct Latent {
    Tensor log_det;  ///< (B)
    RowDependence::Likelihood likelihood;
  };
  Latent latent(const Batch& batch);
  Tensor strength_now() const;
  void take_turn(const Batch& batch);

  FlowPtr flow_;
  Options options_;
  RowDependencePtr dependence_;
  Batch everything_;
  Tensor raw_;       ///< scalar, strength = 0.99 sigmoid(10 raw): a parameter if learned jointly
  Tensor strength_;  ///< scalar buffer otherwise
  Tensor steps_;     ///< scalar buffer: those since the last turn
};

}  // namespace diffeo
