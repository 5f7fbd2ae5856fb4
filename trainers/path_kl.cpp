#include "diffeo/trainers/path_kl.h"

#include "diffeo/layers/stochastic/kernel.h"
#include "diffeo/trainers/variational.h"

namespace diffeo {
namespace {

/// What the spec names, or else what the stochastic layer next to the data moves towards.
LogDensityPtr target_for(const Flow& flow, const Json& spec) {
  if (!spec.is_null()) return within("target", [&] { return build_log_density(spec); });
  for (const auto& module : flow.layers()->modules())
    if (const auto kernel = std::dynamic_pointer_cast<Kernel>(module)) return kernel->density().end();
  throw SpecError("target", "is missing, and the flow has no stochastic layer that has one");
}

}  // namespace

PathKl::PathKl(FlowPtr flow, const Options& options) : PathKl(flow, target_for(*flow, options.target), options) {}

PathKl::PathKl(FlowPtr flow, LogDensityPtr target, const Options& options)
    : flow_(register_module("flow", std::move(flow))), target_(std::move(target)), mixture_(options.mixture) {
  if (!(mixture_ >= 0 && mixture_ <= 1)) throw SpecError("mixture", c10::str("must be from 0 to 1, got ", mixture_));
  check(flow_->context_size() == 0, "path_kl: trains flows without a context, this one takes ", flow_->context_size(),
        " values");
  check(flow_->space().same_as(target_->space()), "path_kl: the flow's data are in ", to_string(flow_->space()),
        " but the target lives on ", to_string(target_->space()));
}

Tensor PathKl::loss(const Batch& batch) {
  follow(*target_, *flow_);
  Tensor loss;
  if (mixture_ > 0) {
    const auto [z, log_det] = flow_->to_latent(batch.x);
    loss = -mixture_ * weighted_mean(flow_->base()->log_prob(z) + log_det, batch.weight);
  }
  if (mixture_ < 1) {
    const auto [x, log_prob] = flow_->draw({batch.x.size(0)});
    const auto reverse = (1 - mixture_) * (log_prob - target_->log_prob(x)).mean();
    loss = loss.defined() ? loss + reverse : reverse;
  }
  return loss;
}

DIFFEO_OBJECTIVE(path_kl, PathKl, "Forward and reverse divergence of paths, for stochastic flows (Wu et al. 2020).");

}  // namespace diffeo
