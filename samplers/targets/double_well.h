#pragma once

#include "diffeo/samplers/target.h"

namespace diffeo {

/// u(x) = a x + b x^2 + c x^4 of one variable, the potential of a double well.
struct Well {
  double a = -0.5, b = -6, c = 1;

  Tensor potential(const Tensor& x) const;
  Tensor slope(const Tensor& x) const;  ///< du/dx
  /// log of the integral of exp(-u) over the line, by the trapezoidal rule on a range beyond which exp(-u) is nothing.
  double log_integral() const;
};

/// Two wells along the first feature, unit normal in the others:
///
///   log p(x) = -(a x1 + b x1^2 + c x1^4) - 1/2 |x_rest|^2 + constant
///
/// Wu, Köhler and Noé, "Stochastic normalizing flows", 2020, https://arxiv.org/abs/2002.06707.
class DoubleWell : public Target {
 public:
  struct Options {
    int64_t features = 2;
    double a = -0.5, b = -6, c = 1;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{optional("features", &O::features, "D, at least 1"),
                        optional("a", &O::a, "tilt of the wells, in nats per unit"),
                        optional("b", &O::b, "of the square; negative for two wells"),
                        optional("c", &O::c, "of the fourth power, above 0")};
    }
  };

  explicit DoubleWell(const Options& options);
  std::string name() const override { return "double_well"; }
  Json spec() const override { return write(name(), options_); }
  std::optional<double> log_normalizer() const override;

 private:
  Tensor evaluate(const Tensor& x) override;
  Sloped evaluate_with_gradient(const Tensor& x) override;

  Options options_;
  Well well_;
};

/// A product of independent double wells in the plane: features 2i are those of the wells, features 2i + 1 are normal.
/// It has 2^wells modes and a known constant.
class ManyDoubleWells : public Target {
 public:
  struct Options {
    int64_t wells = 16;
    double a = -0.5, b = -6, c = 1;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{optional("wells", &O::wells, "number of wells; D is twice that"),
                        optional("a", &O::a, "tilt of the wells, in nats per unit"),
                        optional("b", &O::b, "of the square; negative for two wells"),
                        optional("c", &O::c, "of the fourth power, above 0")};
    }
  };

  explicit ManyDoubleWells(const Options& options);
  std::string name() const override { return "many_double_wells"; }
  Json spec() const override { return write(name(), options_); }
  std::optional<double> log_normalizer() const override;

 private:
  Tensor evaluate(const Tensor& x) override;
  Sloped evaluate_with_gradient(const Tensor& x) override;

  Options options_;
  Well well_;
};

/// Particles whose distances d_ij are in a double well, their centre held by a harmonic force:
///
///   log p(x) = -sum_{i<j} [a (d_ij - d0) + b (d_ij - d0)^2 + c (d_ij - d0)^4] - strength n/2 |mean x|^2 + constant
///
/// Features are the coordinates of particle 0, then those of particle 1, and so on. The standard options are the DW4 of
/// Köhler, Klein and Noé, "Equivariant flows", 2020, https://arxiv.org/abs/2006.02425, eq. 13, where the centre is left
/// out of the density; here it is an independent normal variable, of variance 1 / (n strength).
class ParticleDoubleWell : public Target {
 public:
  struct Options {
    int64_t particles = 4, dimensions = 2;
    double a = 0, b = -4, c = 0.9, distance = 4, strength = 1;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{optional("particles", &O::particles, "n, at least 2"),
                        optional("dimensions", &O::dimensions, "of the space they are in; D is n times that"),
                        optional("a", &O::a, "of the distance, in nats per unit"),
                        optional("b", &O::b, "of its square; negative for two wells"),
                        optional("c", &O::c, "of its fourth power, above 0"),
                        optional("distance", &O::distance, "d0, in the middle of the two wells"),
                        optional("strength", &O::strength, "of the force on the centre, above 0")};
    }
  };

  explicit ParticleDoubleWell(const Options& options);
  std::string name() const override { return "particle_double_well"; }
  Json spec() const override { return write(name(), options_); }

 private:
  Tensor evaluate(const Tensor& x) override;
  Sloped evaluate_with_gradient(const Tensor& x) override;

  Options options_;
};

}  // namespace diffeo
