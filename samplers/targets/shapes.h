#pragma once

#include "diffeo/samplers/target.h"

namespace diffeo {

/// A normalised funnel: x1 ~ N(0, scale^2), the other features ~ N(0, exp(x1)) given x1.
///
/// Neal, "Slice sampling", Annals of Statistics 31, 2003, section 8.
class Funnel : public Target {
 public:
  struct Options {
    int64_t features = 10;
    double scale = 3;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{optional("features", &O::features, "D, at least 2"),
                        optional("scale", &O::scale, "standard deviation of the first feature, above 0")};
    }
  };

  explicit Funnel(const Options& options);
  std::string name() const override { return "funnel"; }
  Json spec() const override { return write(name(), options_); }
  std::optional<double> log_normalizer() const override { return 0; }

 private:
  Tensor evaluate(const Tensor& x) override;
  Sloped evaluate_with_gradient(const Tensor& x) override;

  Options options_;
};

/// A normalised banana: x1 ~ N(0, scale^2), x2 ~ N(-bend (x1^2 - scale^2), 1), the other features ~ N(0, 1).
///
/// Haario, Saksman and Tamminen, "Adaptive proposal distribution for random walk Metropolis algorithm", Computational
/// Statistics 14, 1999, section 3.
class Banana : public Target {
 public:
  struct Options {
    int64_t features = 2;
    double scale = 10, bend = 0.03;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{optional("features", &O::features, "D, at least 2"),
                        optional("scale", &O::scale, "standard deviation of the first feature, above 0"),
                        optional("bend", &O::bend, "how much the banana is bent")};
    }
  };

  explicit Banana(const Options& options);
  std::string name() const override { return "banana"; }
  Json spec() const override { return write(name(), options_); }
  std::optional<double> log_normalizer() const override { return 0; }

 private:
  Tensor evaluate(const Tensor& x) override;
  Sloped evaluate_with_gradient(const Tensor& x) override;

  Options options_;
};

/// The potential of Müller and Brown in the plane, three minima along a bent path, at a temperature.
///
///   log p(x, y) = -1/temperature sum_k A_k exp(a_k dx^2 + b_k dx dy + c_k dy^2),  dx = x - x_k, dy = y - y_k
///
/// Müller and Brown, "Location of saddle points and minimum energy paths by a constrained simplex optimization
/// procedure", Theoretica Chimica Acta 53, 1979. Minima near (-0.558, 1.442), (0.623, 0.028) and (-0.050, 0.467), of
/// energies -146.70, -108.17 and -80.77.
class MullerBrown : public Target {
 public:
  struct Options {
    double temperature = 20;
    static constexpr auto fields() {
      return std::tuple{optional("temperature", &Options::temperature, "in units of the energy, above 0")};
    }
  };

  explicit MullerBrown(const Options& options);
  std::string name() const override { return "muller_brown"; }
  Json spec() const override { return write(name(), options_); }
  /// By the trapezoidal rule on a grid of 801 x 801 points over all that counts for temperatures up to 100.
  std::optional<double> log_normalizer() const override;

 private:
  Tensor evaluate(const Tensor& x) override;
  Sloped evaluate_with_gradient(const Tensor& x) override;

  Options options_;
};

/// A real scalar field on a periodic lattice of side x side sites, in the plane:
///
///   log p(x) = -sum_s [(1 - 2 lambda) x_s^2 + lambda x_s^4 - 2 kappa sum_{mu} x_s x_{s+mu}]
///
/// with the two neighbours s + mu in the positive directions; features are the sites row by row. As in Nicoli et al.,
/// "Estimation of thermodynamic observables in lattice field theories with deep generative models", Physical Review
/// Letters 126, 2021, https://arxiv.org/abs/2007.07115, eq. 2. At lambda = 0 the field is free, and its constant known.
class Phi4 : public Target {
 public:
  struct Options {
    int64_t side = 8;
    double kappa = 0.3, lambda = 0.022;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{optional("side", &O::side, "sites along each direction, at least 2; D is its square"),
                        optional("kappa", &O::kappa, "hopping parameter; below 0.25 where lambda is 0"),
                        optional("lambda", &O::lambda, "coupling, not negative")};
    }
  };

  explicit Phi4(const Options& options);
  std::string name() const override { return "phi4"; }
  Json spec() const override { return write(name(), options_); }
  std::optional<double> log_normalizer() const override;

 private:
  Tensor evaluate(const Tensor& x) override;
  Sloped evaluate_with_gradient(const Tensor& x) override;

  Options options_;
};

}  // namespace diffeo
