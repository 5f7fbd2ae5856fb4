#include "diffeo/layers/stochastic/kernel.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <cmath>
#include <limits>

#include "diffeo/layers/base/ranges.h"
#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

constexpr double least_rate = 0.02;  ///< of the adaptation, which begins with rate 1 and slows down

/// NaN has no density.
Tensor without_nan(const Tensor& log_prob) {
  return log_prob.masked_fill(log_prob.isnan(), -std::numeric_limits<double>::infinity());
}

}  // namespace

Kernel::Densities Kernel::densities_of(const KernelOptions& options, LogDensityPtr density, LogDensityPtr start) {
  if (!density) density = within("density", [&] { return build_log_density(options.density); });
  if (!start && !options.start.is_null()) start = within("start", [&] { return build_log_density(options.start); });
  return {std::move(start), std::move(density)};
}

Kernel::Kernel(const KernelOptions& options, LogDensityPtr density, LogDensityPtr start)
    : Kernel(options, densities_of(options, std::move(density), std::move(start))) {}

Kernel::Kernel(const KernelOptions& options, const Densities& densities)
    : Layer(densities.end->space()),
      options_(options),
      density_(
          register_module("density", std::make_shared<Interpolation>(densities.start, densities.end, options.lambda))) {
  at_least(0, "steps", options.steps);
  above_zero("step_size", options.step_size);
  if (!(options.largest_force > 0))
    throw SpecError("largest_force", c10::str("must be above 0, got ", options.largest_force));
}

void Kernel::learn_step_size(bool learn) {
  const auto first = torch::tensor(std::log(options_.step_size), torch::kFloat32);
  log_step_size_ = learn ? register_parameter("log_step_size", first) : register_buffer("log_step_size", first);
}

void Kernel::adapt_to(double target_acceptance) {
  if (!(target_acceptance >= 0 && target_acceptance < 1))
    throw SpecError("target_acceptance", c10::str("must be 0, or between 0 and 1, got ", target_acceptance));
  learn_step_size(false);
  target_acceptance_ = target_acceptance;
  if (target_acceptance > 0) adaptations_ = register_buffer("adaptations", torch::zeros({}, torch::kFloat32));
}

double Kernel::acceptance() const {
  return proposals_ == 0 ? std::numeric_limits<double>::quiet_NaN()
                         : acceptances_.item<double>() / static_cast<double>(proposals_);
}

Sloped Kernel::slope(const Tensor& x) const {
  Sloped here;
  if (at::GradMode::is_enabled() && x.requires_grad()) {
    here.log_prob = density_->log_prob(x);
    if (here.log_prob.requires_grad())
      here.gradient = torch::autograd::grad({here.log_prob.sum()}, {x}, {}, true, true, true)[0];
    if (!here.gradient.defined()) here.gradient = torch::zeros_like(x);
  } else {
    here = density_->log_prob_and_gradient(x);
  }
  here.gradient = here.gradient.nan_to_num(0, options_.largest_force, -options_.largest_force)
                      .clamp(-options_.largest_force, options_.largest_force);
  here.log_prob = without_nan(here.log_prob);
  return here;
}

Tensor Kernel::log_prob_of(const Tensor& x) const {
  torch::NoGradGuard no_grad;
  return without_nan(density_->log_prob(x.detach()));
}

Tensor Kernel::accepted(const Tensor& log_ratio) {
  torch::NoGradGuard no_grad;
  // NaN, between two points without density, is false.
  const auto accept = torch::rand_like(log_ratio).log() < log_ratio;
  if (accept.numel() == 0) return accept;
  const auto share = accept.to(log_ratio.scalar_type()).mean();
  acceptances_ = proposals_ == 0 ? share : acceptances_ + share;
  ++proposals_;
  return accept;
}

Tensor Kernel::balance(const Tensor& x, const Tensor& y, const Tensor& at_x, const Tensor& at_y) const {
  const bool again = at::GradMode::is_enabled();
  const auto here = again ? without_nan(density_->log_prob(x)) : at_x;
  const auto there = again ? without_nan(density_->log_prob(y)) : at_y;
  return torch::where(there == here, torch::zeros_like(here), here - there);
}

Mapped Kernel::run(const Tensor& x) {
  proposals_ = 0;
  if (options_.steps == 0) return {x, x.new_zeros(x.sizes().slice(0, x.dim() - domain().event.size()))};
  auto moved = move(x);
  if (adaptations_.defined() && is_training() && proposals_ > 0) {
    torch::NoGradGuard no_grad;
    adaptations_.add_(1);
    const auto rate = adaptations_.rsqrt().clamp_min(least_rate);
    log_step_size_.add_(rate * (acceptances_ / proposals_ - target_acceptance_));
  }
  return moved;
}

Tensor chosen(const Tensor& accept, const Tensor& proposal, const Tensor& x) {
  auto shape = accept.sizes().vec();
  shape.resize(static_cast<size_t>(x.dim()), 1);
  return torch::where(accept.view(shape), proposal, x);
}

}  // namespace diffeo
