#pragma once

#include "diffeo/layers/base/layer.h"
#include "diffeo/layers/stochastic/interpolation.h"

namespace diffeo {

/// What all stochastic layers are told.
struct KernelOptions {
  Json density;
  Json start = nullptr;
  double lambda = 1;
  int64_t steps = 10;
  double step_size = 0.1;
  double largest_force = 1000;
};

/// The fields of KernelOptions, for the options of a kernel that are derived from them.
constexpr auto kernel_fields() {
  using O = KernelOptions;
  return std::tuple{
      required("density", &O::density, "spec of a target, or of a base distribution: the density at lambda 1"),
      optional("start", &O::start, "the same for lambda 0; null: the standard normal"),
      optional("lambda", &O::lambda, "the layer moves at (1 - lambda) log p_start + lambda log p_density, 0 to 1"),
      optional("steps", &O::steps, "steps of the Markov chain; 0: the identity"),
      optional("step_size", &O::step_size, "of each step, above 0"),
      optional("largest_force", &O::largest_force, "forces are cut here, feature by feature; path weights stay exact")};
}

/// A Markov kernel as a layer: points move at random, and the log determinant is the increment of the path's weight.
///
///   log_det = dS = log P(y -> x) - log P(x -> y)
///
/// of the move x -> y that was made. Forward and inverse both run the same kernel, which is its own backward kernel:
/// inverse undoes forward in distribution only. So both ways, for a density p_a that x is drawn from and a normalised
/// density p_b,
///
///   E[p_b(y) / p_a(x) exp(log_det)] = 1,
///
/// exactly, for every step size. Signs: a Flow carries data forward to its base, so that samples of a target go from
/// the base through `inverse`, whose log_dets are the dS of Wu et al., and add up to log w = log p_target(x_T) - log
/// p_base(x_0) + sum dS.
///
/// Random numbers come from torch's default generator. Gradients flow through the moves with their random numbers held
/// fixed; those of kernels that accept or reject take that decision as given, which makes gradients biased but leaves
/// weights exact.
///
/// To add a kernel, override `move` and `spec`.
///
/// Wu, Köhler and Noé, "Stochastic normalizing flows", 2020, https://arxiv.org/abs/2002.06707, eq. 8 to 15 and
/// appendices.
class Kernel : public Layer {
 public:
  Traits traits() const override { return {.random = true}; }

  /// The density that the layer moves at, up to a constant.
  Interpolation& density() const { return *density_; }
  const KernelOptions& kernel_options() const { return options_; }

  /// The size of a step as it is now, in the units of the points (metropolis), of time (hmc, underdamped) or of time
  /// squared over 2, the e of the equations (langevin, mala).
  double step_size() const { return step().item<double>(); }
  /// The share of the proposals of the last call that were accepted, 0 to 1; NaN before the first call and for kernels
  /// that accept everything.
  double acceptance() const;

 protected:
  /// `density` and `start` instead of those that the specs in `options` name, where they are given.
  explicit Kernel(const KernelOptions& options, LogDensityPtr density = nullptr, LogDensityPtr start = nullptr);

  /// Makes the step size a parameter that training learns, or else a buffer.
  void learn_step_size(bool learn);
  /// Moves the step size, in training only, until this share of the proposals is accepted; 0: never.
  void adapt_to(double target_acceptance);

  /// y, and log_det where the kernel knows it step by step: after `options.steps` steps from x.
  virtual Mapped move(const Tensor& x) = 0;

  Tensor step() const { return log_step_size_.exp(); }  ///< a scalar, with its graph where it is learned
  /// The log density of x, and the force on it: the gradient, cut at largest_force, 0 where there is none. With a graph
  /// where x has one.
  Sloped slope(const Tensor& x) const;
  /// Log densities of points, -inf instead of NaN, without a graph.
  Tensor log_prob_of(const Tensor& x) const;
  /// Whether to accept moves of these log probability ratios: (*batch), bool. Counts them.
  Tensor accepted(const Tensor& log_ratio);
  /// dS of a kernel in detailed balance with its density: log p(x) - log p(y), whatever the chain did on its way.
  /// `at_x` and `at_y` are the two as the chain met them; with gradients, which they lack, they are evaluated again.
  Tensor balance(const Tensor& x, const Tensor& y, const Tensor& at_x, const Tensor& at_y) const;
  Tensor sum_of_event(const Tensor& values) const { return diffeo::sum_of_event(values, domain()); }

 private:
  struct Densities {
    LogDensityPtr start, end;
  };
  static Densities densities_of(const KernelOptions& options, LogDensityPtr density, LogDensityPtr start);
  Kernel(const KernelOptions& options, const Densities& densities);

  Mapped map(const Tensor& x, const Tensor& /*context*/) override { return run(x); }
  Mapped unmap(const Tensor& y, const Tensor& /*context*/) override { return run(y); }
  Mapped run(const Tensor& x);

  KernelOptions options_;
  std::shared_ptr<Interpolation> density_;
  Tensor log_step_size_;  ///< (), parameter or buffer
  Tensor adaptations_;    ///< (), how often the step size was moved; undefined where it never is
  double target_acceptance_ = 0;
  Tensor acceptances_;  ///< (), sum over the proposals of the last call, each a mean over the batch
  int64_t proposals_ = 0;
};

/// A copy of the points x that are accepted from `proposal`: where(accept, proposal, x) with events of any shape.
Tensor chosen(const Tensor& accept, const Tensor& proposal, const Tensor& x);

}  // namespace diffeo
