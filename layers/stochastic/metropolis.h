#pragma once

#include "diffeo/layers/stochastic/kernel.h"

namespace diffeo {

/// What the kernels that accept or reject their proposals are told.
struct AdaptiveOptions : KernelOptions {
  double target_acceptance = 0;
  static constexpr auto fields() {
    return std::tuple_cat(
        kernel_fields(),
        std::tuple{optional("target_acceptance", &AdaptiveOptions::target_acceptance,
                            "in training the step size moves until this share is accepted; 0: it stays")});
  }
};

/// Random-walk Metropolis: y = x + step n is accepted with probability min(1, p(y)/p(x)).
///
///   dS = log p(x first) - log p(x last)
///
/// Metropolis et al., "Equation of state calculations by fast computing machines", 1953; as a layer: Wu, Köhler and
/// Noé, https://arxiv.org/abs/2002.06707, section 3.2.
class Metropolis : public Kernel {
 public:
  using Options = AdaptiveOptions;

  explicit Metropolis(const Options& options, LogDensityPtr density = nullptr, LogDensityPtr start = nullptr);
  Json spec() const override { return write("metropolis", options_); }

 private:
  Mapped move(const Tensor& x) override;

  Options options_;
};

/// The Metropolis-adjusted Langevin algorithm: the step of Langevin is accepted with probability min(1, exp(log p(y) -
/// log p(x) + dS of the step)).
///
///   dS = log p(x first) - log p(x last)
///
/// Roberts and Tweedie, "Exponential convergence of Langevin distributions and their discrete approximations",
/// Bernoulli 2, 1996.
class Mala : public Kernel {
 public:
  using Options = AdaptiveOptions;

  explicit Mala(const Options& options, LogDensityPtr density = nullptr, LogDensityPtr start = nullptr);
  Json spec() const override { return write("mala", options_); }

 private:
  Mapped move(const Tensor& x) override;

  Options options_;
};

/// Hamiltonian Monte Carlo: from a fresh momentum v ~ N(0, I), `leapfrog` steps of size t of
///
///   v <- v + t/2 f(x),   x <- x + t v,   v <- v + t/2 f(x)
///
/// are accepted with probability min(1, exp(-change of -log p(x) + |v|^2/2)).
///
///   dS = log p(x first) - log p(x last)
///
/// Duane et al., "Hybrid Monte Carlo", Physics Letters B 195, 1987; Neal, https://arxiv.org/abs/1206.1901.
class Hmc : public Kernel {
 public:
  struct Options : AdaptiveOptions {
    int64_t leapfrog = 5;
    static constexpr auto fields() {
      return std::tuple_cat(AdaptiveOptions::fields(),
                            std::tuple{optional("leapfrog", &Options::leapfrog,
                                                "leapfrog steps for each of the chain's steps, at least 1")});
    }
  };

  explicit Hmc(const Options& options, LogDensityPtr density = nullptr, LogDensityPtr start = nullptr);
  Json spec() const override { return write("hmc", options_); }

 private:
  Mapped move(const Tensor& x) override;

  Options options_;
};

}  // namespace diffeo
