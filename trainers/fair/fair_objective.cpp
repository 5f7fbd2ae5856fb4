#include "diffeo/trainers/fair/fair_objective.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <cmath>

namespace diffeo {
namespace {

/// The log density of all groups but `left_out` together, (n), from those of each (n, K).
Tensor pooled_without(const Tensor& log_densities, int64_t left_out) {
  const auto groups = log_densities.size(1);
  if (groups == 2) return log_densities.select(1, 1 - left_out);
  const auto others =
      at::cat({log_densities.narrow(1, 0, left_out), log_densities.narrow(1, left_out + 1, groups - left_out - 1)}, 1);
  return at::logsumexp(others, 1) - std::log(static_cast<double>(groups - 1));
}

void check_range(const char* name, const std::vector<double>& range) {
  if (range.size() != 2 || !(range[0] < range[1])) throw SpecError(name, "expected two numbers, the smaller one first");
}

}  // namespace

Tensor symmetrized_divergence(const std::vector<Tensor>& log_densities) {
  const auto groups = static_cast<int64_t>(log_densities.size());
  std::vector<Tensor> terms;
  for (int64_t a = 0; a < groups; ++a) {
    const auto& own = log_densities[a];
    terms.push_back((own.select(1, a) - pooled_without(own, a)).mean());
    std::vector<Tensor> back;
    for (int64_t b = 0; b < groups; ++b)
      if (b != a) back.push_back((pooled_without(log_densities[b], a) - log_densities[b].select(1, a)).mean());
    terms.push_back(at::stack(back).mean());
  }
  return at::stack(terms).mean();
}

FairObjective::FairObjective(FairFlowPtr model, GroupDensities densities, const Tensor& group_shares,
                             const Options& options)
    : model_(register_module("model", std::move(model))), densities_(std::move(densities)), options_(options) {
  if (!(options.gamma >= 0 && options.gamma <= 1))
    throw SpecError("gamma", c10::str("must lie in [0, 1], got ", options.gamma));
  at_least(0, "ramp_start", options.ramp_start);
  if (options.ramp_end > 0) at_least(options.ramp_start + 1, "ramp_end", options.ramp_end);
  at_least(1, "draws", options.draws);
  check_choice("scalarization", options.scalarization, {"weighted_sum", "chebyshev"});
  check_range("divergence_range", options.divergence_range);
  check_range("cross_entropy_range", options.cross_entropy_range);
  check(!densities_.empty(), "fair objective: there are no densities of the groups");
  for (const auto& stratum : densities_) {
    check(static_cast<int64_t>(stratum.size()) == model_->groups(), "fair objective: the model has ", model_->groups(),
          " groups, but there are densities of ", stratum.size());
    for (const auto& density : stratum) {
      check(density->space().size() == model_->features(), "fair objective: the model has ", model_->features(),
            " features, but a density has ", density->space().size());
      for (auto& parameter : density->parameters()) parameter.requires_grad_(false);
      density->eval();
    }
  }
  check(group_shares.dim() == 1 && group_shares.size(0) == model_->groups() && (group_shares > 0).all().item<bool>(),
        "fair objective: expected a positive share of the rows for each of ", model_->groups(), " groups, got ",
        group_shares.sizes());
  group_weight_ =
      register_buffer("group_weight", 1 / (static_cast<double>(model_->groups()) * group_shares.to(torch::kFloat32)));
  steps_ = register_buffer("steps", at::zeros({}, torch::kLong));
}

double FairObjective::weight_now() {
  if (!is_training()) return options_.gamma;
  const auto step = static_cast<double>(steps_.item<int64_t>());
  steps_.add_(1);
  const auto start = static_cast<double>(options_.ramp_start), end = static_cast<double>(options_.ramp_end);
  if (step < start) return 0;
  if (step + 1 >= end) return options_.gamma;
  return options_.gamma * (step + 1 - start) / (end - start);
}

Tensor FairObjective::divergence_of(const std::vector<DistributionPtr>& densities) {
  std::vector<Tensor> all;
  for (int64_t a = 0; a < model_->groups(); ++a) {
    const auto [x, own] = [&] {
      const at::NoGradGuard no_grad;
      return densities[a]->draw({options_.draws});
    }();
    const auto [z, log_det] = model_->encode(x, a);
    std::vector<Tensor> each;
    for (int64_t b = 0; b < model_->groups(); ++b) {
      if (b == a) {
        each.push_back(own - log_det);  // at the draws themselves there is nothing to invert
        continue;
      }
      const auto [back, back_log_det] = model_->decode(z, b);
      each.push_back(densities[b]->log_prob(back) + back_log_det);
    }
    all.push_back(at::stack(each, -1));
  }
  return symmetrized_divergence(all);
}

Tensor FairObjective::divergence() {
  Tensor total;
  for (const auto& stratum : densities_) {
    const auto one = divergence_of(stratum);
    total = total.defined() ? total + one : one;
  }
  return total;
}

Tensor FairObjective::cross_entropy(const Batch& batch) {
  check(batch.context.defined() && batch.label.defined(),
        "fair objective: a batch needs the group in its context and the label");
  const auto group = batch.context.reshape({batch.x.size(0), -1}).select(1, 0).to(torch::kLong);
  const auto label = batch.label.reshape({batch.x.size(0), -1}).select(1, 0).to(torch::kLong);
  const auto logits = model_->classify(model_->encode_rows(batch.x, group));
  const auto each = at::cross_entropy_loss(logits, label, {}, at::Reduction::None);
  return weighted_mean(each * group_weight_.index_select(0, group), batch.weight);
}

Tensor FairObjective::loss(const Batch& batch) {
  const double weight = weight_now();
  // What has no weight is left out, unless nothing would remain to differentiate.
  const auto told = cross_entropy(batch);
  if (weight == 0 && options_.scalarization == "weighted_sum") return told;
  const auto hidden = divergence();
  if (options_.scalarization == "weighted_sum") return weight * hidden + (1 - weight) * told;
  const auto scaled = [](const Tensor& value, const std::vector<double>& range) {
    return (value - range[0]) / (range[1] - range[0]);
  };
  return at::maximum(weight * scaled(hidden, options_.divergence_range),
                     (1 - weight) * scaled(told, options_.cross_entropy_range));
}

}  // namespace diffeo
