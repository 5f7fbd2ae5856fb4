#pragma once

#include "diffeo/layers/stochastic/kernel.h"

namespace diffeo {

/// What the kernels that accept everything are told.
struct LangevinOptions : KernelOptions {
  bool trainable = true;
  static constexpr auto fields() {
    return std::tuple_cat(kernel_fields(),
                          std::tuple{optional("trainable", &LangevinOptions::trainable, "learn the step size")});
  }
};

/// Steps of overdamped Langevin dynamics, never rejected, with step size e and force f(x) = d log p/dx:
///
///   y = x + e f(x) + sqrt(2e) n,   dS = 1/2 (|n|^2 - |n'|^2),   n' = -sqrt(e/2) (f(x) + f(y)) - n
///
/// dS is exact for every e and every force; the weights scatter the more the larger e is. Gradients reach the step size
/// and the points, through second derivatives of the density.
///
/// Wu, Köhler and Noé, "Stochastic normalizing flows", 2020, https://arxiv.org/abs/2002.06707, section 3.2.
class Langevin : public Kernel {
 public:
  using Options = LangevinOptions;

  explicit Langevin(const Options& options, LogDensityPtr density = nullptr, LogDensityPtr start = nullptr);
  Json spec() const override { return write("langevin", options_); }

 private:
  Mapped move(const Tensor& x) override;

  Options options_;
};

/// Steps of underdamped Langevin dynamics at temperature 1, never rejected, with step size t, mass m and friction g.
/// The velocity v is drawn afresh, from N(0, I/m), at the beginning of the layer and left behind at its end:
///
///   u  = v + t/(2m) (f(x) - g m v + s n1),   s = sqrt(4 g m/t)
///   y  = x + t u
///   v' = (u + t/(2m) (f(y) + s n2)) / (1 + g t/2)
///   dS = sum over steps of 1/2 (|n1|^2 + |n2|^2 - |n1'|^2 - |n2'|^2) + m/2 (|v first|^2 - |v last|^2)
///   n1' = n2 - sqrt(g m t) v',   n2' = n1 - sqrt(g m t) v
///
/// The way back starts from -v last, which a fresh velocity is as likely to be.
///
/// Wu, Köhler and Noé, "Stochastic normalizing flows", 2020, https://arxiv.org/abs/2002.06707, appendix.
class Underdamped : public Kernel {
 public:
  struct Options : LangevinOptions {
    double friction = 1, mass = 1;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple_cat(LangevinOptions::fields(),
                            std::tuple{optional("friction", &O::friction, "g, above 0, per time"),
                                       optional("mass", &O::mass, "m of each feature, above 0")});
    }
  };

  explicit Underdamped(const Options& options, LogDensityPtr density = nullptr, LogDensityPtr start = nullptr);
  Json spec() const override { return write("underdamped", options_); }

 private:
  Mapped move(const Tensor& x) override;

  Options options_;
};

}  // namespace diffeo
