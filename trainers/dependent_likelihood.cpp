#include "diffeo/trainers/dependent_likelihood.h"

#include <ATen/ops/full.h>
#include <ATen/ops/logit.h>
#include <ATen/ops/zeros.h>

#include "diffeo/layers/base/memory.h"

namespace diffeo {
namespace {

constexpr double least_learnable = 1e-3;  // the inverse sigmoid of 0 is no number
// The logit of the strength is this many times its parameter, which so goes its way in the steps that a flow's weights
// need, and on which a decay of the weights has a hundredth of its effect.
constexpr double pace = 10;

void check_base(const Flow& flow) {
  const auto base = flow.base()->spec();
  check(base.value("type", std::string()) == "normal" && !base.value("trainable", false),
        "dependent_likelihood: needs a flow on the standard normal base, which has a version with dependent rows; "
        "this one has ",
        base.dump());
  check(!flow.layers()->traits().random,
        "dependent_likelihood: a flow with random layers has no latent rows that could depend on each other");
}

}  // namespace

DependentLikelihood::DependentLikelihood(FlowPtr flow, const Options& options)
    : DependentLikelihood(std::move(flow), options, nullptr) {}

DependentLikelihood::DependentLikelihood(FlowPtr flow, const Options& options, RowDependencePtr dependence,
                                         Batch everything)
    : flow_(register_module("flow", std::move(flow))),
      options_(options),
      dependence_(dependence ? dependence->to(flow_->tensor_options()) : nullptr),
      everything_(std::move(everything)) {
  check_base(*flow_);
  if (!(options.strength >= 0 && options.strength <= RowDependence::most))
    throw SpecError("strength", c10::str("must be between 0 and ", RowDependence::most, ", got ", options.strength));
  check_choice("learn", options.learn, {"no", "joint", "turns"});
  at_least(1, "turn_steps", options.turn_steps);
  const auto own = flow_->tensor_options();
  if (options.learn == "joint") {
    const double share = std::max(options.strength, least_learnable) / RowDependence::most;
    raw_ = register_parameter("raw_strength", at::logit(at::full({}, share, own), 1e-6) / pace);
    return;
  }
  strength_ = register_buffer("strength", at::full({}, options.strength, own));
  if (options.learn == "turns") steps_ = register_buffer("steps_since_turn", at::zeros({}, own.dtype(torch::kInt64)));
}

Tensor DependentLikelihood::strength_now() const {
  return raw_.defined() ? RowDependence::most * (pace * raw_).sigmoid() : strength_.clone();
}

double DependentLikelihood::strength() const { return strength_now().item<double>(); }

DependentLikelihood::Latent DependentLikelihood::latent(const Batch& batch) {
  const auto [z, log_det] = flow_->to_latent(batch.x, batch.context);
  const auto rows = z.reshape({z.size(0), -1});
  return {log_det,
          dependence_ ? dependence_->estimate(rows, batch.label) : GroupedRows::of_whole_groups(rows, batch.label)};
}

/// The first step takes a turn too.
void DependentLikelihood::take_turn(const Batch& batch) {
  torch::NoGradGuard no_grad;
  if (steps_.item<int64_t>() % options_.turn_steps == 0) {
    const auto all = latent(everything_.x.defined() ? everything_ : batch);
    strength_.fill_(best_strength(all.likelihood, strength_));
  }
  steps_.add_(1);
}

Tensor DependentLikelihood::loss(const Batch& batch) {
  if (!is_training()) return -weighted_mean(flow_->log_prob(batch.x, batch.context), batch.weight);
  check(batch.label.defined() && batch.label.dim() == 1,
        "dependent_likelihood: each row needs one label that says to which rows it is related");
  check(!batch.weight.defined(), "dependent_likelihood: rows that depend on each other have no weights");
  if (steps_.defined()) take_turn(batch);
  const auto [log_det, likelihood] = latent(batch);
  return -(log_det.mean() + likelihood(strength_now()));
}

DIFFEO_OBJECTIVE(dependent_likelihood, DependentLikelihood,
                 "Minus the log-likelihood of groups of equally correlated rows, labels naming the group "
                 "(Kirchler et al. 2023, https://arxiv.org/abs/2209.14933).");

}  // namespace diffeo
