#include "diffeo/trainers/reverse_kl.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include "diffeo/flows/score.h"
#include "diffeo/layers/base/random.h"
#include "diffeo/layers/base/training_guard.h"
#include "diffeo/trainers/variational.h"

namespace diffeo {
namespace {

/// Whether every parameter of a base moves the points that it draws.
bool is_reparametrised(Distribution& base) {
  const auto parameters = base.parameters();
  if (parameters.empty()) return true;
  const SeedGuard guard(0, base.tensor_options().device());
  const torch::AutoGradMode for_derivatives(true);
  const auto drawn = base.draw({2}).value;
  if (!drawn.requires_grad()) return false;
  for (const auto& found : torch::autograd::grad({drawn.sum()}, parameters, {}, false, false, true))
    if (!found.defined()) return false;
  return true;
}

}  // namespace

ReverseKl::ReverseKl(FlowPtr flow, const Options& options)
    : ReverseKl(flow, target_in("reverse_kl", options.target), options) {}

ReverseKl::ReverseKl(FlowPtr flow, LogDensityPtr target, const Options& options)
    : flow_(std::move(flow)), target_(std::move(target)), options_(options) {
  check_choice("estimator", options.estimator, {"path", "reparametrised", "path_two_pass"});
  at_least(0, "anneal", options.anneal);
  if (!(options.anneal_from > 0 && options.anneal_from <= 1))
    throw SpecError("anneal_from", c10::str("must be in (0, 1], got ", options.anneal_from));
  check_variational("reverse_kl", *flow_, *target_, options.estimator != "reparametrised");
  check(is_reparametrised(*flow_->base()), "reverse_kl: the base ", flow_->base()->spec().at("type").get<std::string>(),
        " learns parameters that its points do not depend on; take a base without parameters, or normal");
  register_module("flow", flow_);
  batches_ = register_buffer("batches", at::zeros({}, flow_->tensor_options().dtype(torch::kLong)));
}

Tensor ReverseKl::next_beta() {
  const auto one = at::ones({}, flow_->tensor_options());
  if (!is_training() || options_.anneal == 0) return one;
  const auto part = (batches_.to(one.scalar_type()) / static_cast<double>(options_.anneal)).clamp_max(1);
  batches_.add_(1);
  return options_.anneal_from + (1 - options_.anneal_from) * part;
}

Tensor ReverseKl::loss(const Batch& batch) {
  follow(*target_, *flow_);
  const auto draws = batch.x.size(0);
  if (at::GradMode::is_enabled()) return divergence(draws, next_beta());
  const auto [x, log_q] = flow_->draw({draws});
  return (log_q - next_beta() * target_->log_prob(x)).mean();
}

Tensor ReverseKl::divergence(int64_t draws, const Tensor& beta) {
  const auto slope_at = [&](const Tensor& x) {
    auto density = target_->log_prob_and_gradient(x.detach());
    if (!std::exchange(looked_, true)) check_finite("reverse_kl", "the flow's first draws", x.detach(), density);
    return density;
  };
  if (options_.estimator == "path") {
    const auto [x, log_q, score] = flow_->draw_with_score({draws});
    const auto [log_p, force] = slope_at(x);
    return with_gradient((log_q - beta * log_p).mean(), x, (score - beta * force) / static_cast<double>(draws));
  }
  const auto [x, log_q] = flow_->draw({draws});
  const auto [log_p, force] = slope_at(x);
  if (options_.estimator == "path_two_pass") {
    // A layer may set itself from the points that go forward in training (ActNorm): here they are only looked at.
    const TrainingGuard looks_only(*flow_, false);
    const auto score = score_of(*flow_, x).gradient;
    return with_gradient((log_q - beta * log_p).mean(), x, (score - beta * force) / static_cast<double>(draws));
  }
  // A target need not be differentiable by autograd: its gradient by the points is known.
  const auto through_points = ((x - x.detach()) * force).flatten(1).sum(-1);
  return (log_q - beta * (log_p + through_points)).mean();
}

DIFFEO_OBJECTIVE(reverse_kl, ReverseKl,
                 "Reverse Kullback-Leibler divergence from a target, on the flow's own draws, with path gradients "
                 "(Vaitl et al. 2024).");

}  // namespace diffeo
