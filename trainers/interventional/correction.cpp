#include "diffeo/trainers/interventional/correction.h"

#include <torch/types.h>

namespace diffeo {

Correction correction_named(const std::string& name) {
  check_choice("correction", name, {"plug_in", "iptw", "aiptw"});
  return name == "plug_in" ? Correction::plug_in : name == "iptw" ? Correction::iptw : Correction::aiptw;
}

std::string name_of(Correction correction) {
  return correction == Correction::plug_in ? "plug_in" : correction == Correction::iptw ? "iptw" : "aiptw";
}

InterventionalLikelihood::InterventionalLikelihood(std::vector<FlowPtr> targets, Correction correction,
                                                   const Tensor& grid)
    : targets_(std::move(targets)), correction_(correction), grid_(grid) {
  check(!targets_.empty(), "interventional likelihood: no target flows");
  for (size_t a = 0; a < targets_.size(); ++a) {
    check(targets_[a]->context_size() == 0, "interventional likelihood: the target flow of treatment ", a,
          " takes a context");
    check((targets_[a]->space().size() == 1) == grid.defined(),
          "interventional likelihood: one outcome needs a grid, several take none");
    register_module("target_" + std::to_string(a), targets_[a]);
  }
}

Tensor InterventionalLikelihood::loss(const Batch& batch) {
  const auto treatments = static_cast<int64_t>(targets_.size());
  const auto outcomes = targets_[0]->space().size();
  Tensor total;
  for (int64_t a = 0; a < treatments; ++a) {
    const auto& target = targets_[a];
    const auto expected = [&] {
      const auto mine = batch.context.unflatten(-1, {treatments, -1}).select(1, a);
      if (grid_.defined()) return -mine.matmul(target->log_prob(grid_));
      return -target->log_prob(mine.unflatten(-1, {-1, outcomes})).mean(-1);
    };
    const auto weight = batch.label.select(1, a);
    Tensor each;
    if (correction_ == Correction::plug_in) {
      each = expected();
    } else {
      // Rows without a weight may lie anywhere: what the flow says of them must not count, not even as 0 inf.
      const auto seen = -target->log_prob(batch.x).masked_fill(weight == 0, 0);
      if (correction_ == Correction::iptw) {
        each = weight * seen;
      } else {
        const auto cross_entropy = expected();
        each = cross_entropy + weight * (seen - cross_entropy);
      }
    }
    const auto mean = weighted_mean(each, batch.weight);
    total = total.defined() ? total + mean : mean;
  }
  return total;
}

Batch rows_of(const Predictions& predictions, const Tensor& outcome, const Tensor& weights) {
  const auto& nodes = predictions.shared_grid() ? predictions.probability : predictions.points;
  return {.x = outcome, .context = nodes.flatten(1), .label = weights};
}

}  // namespace diffeo
