#pragma once

#include "diffeo/layers/base/univariate.h"

namespace diffeo {

/// Box-Cox transform, without parameters: y = (x^lambda - 1) / lambda, or log x where lambda is 0, from (0, inf) to
/// (-1 / lambda, inf), to the line where lambda is 0, and to (-inf, -1 / lambda) where it is negative.
///
/// `lambda` is an option and not learned: the image moves with it, and a density on all of the line would lose the
/// mass that lies outside of the image. DualPower is the family with a learned power whose image is all of the line.
///
/// Box and Cox, "An Analysis of Transformations", 1964, https://doi.org/10.1111/j.2517-6161.1964.tb00553.x, eq. 1.
class BoxCox : public Univariate {
 public:
  struct Options {
    double lambda = 0;
    static constexpr auto fields() {
      return std::tuple{optional("lambda", &Options::lambda, "the power; 0 is the logarithm")};
    }
  };

  explicit BoxCox(const Options& options);

  int64_t parameters() const override { return 0; }
  Mapped forward(const Tensor& x, const Tensor& parameters) const override;
  Mapped inverse(const Tensor& y, const Tensor& parameters) const override;
  Axis domain() const override;
  Axis codomain() const override;
  Json spec() const override { return write("box_cox", options_); }

 private:
  Options options_;
};

/// Dual power transform: y = (x^lambda - x^-lambda) / (2 lambda) = sinh(lambda log x) / lambda, from (0, inf) onto the
/// line for every lambda, with one parameter a and lambda = 0.001 + 0.999 sigmoid(a). Small lambda: nearly log x.
///
/// Yang, "A modified family of power transformations", 2006, https://doi.org/10.1016/j.econlet.2006.01.011, eq. 1.
class DualPower : public Univariate {
 public:
  using Options = NoOptions;
  explicit DualPower(const Options&) {}

  int64_t parameters() const override { return 1; }
  Mapped forward(const Tensor& x, const Tensor& parameters) const override;
  Mapped inverse(const Tensor& y, const Tensor& parameters) const override;
  Axis domain() const override;
  Json spec() const override { return write("dual_power", Options{}); }
};

/// Yeo-Johnson transform, from the line onto the line:
///
///   y = ((1 + x)^lambda - 1) / lambda              where x >= 0
///   y = -((1 - x)^(2 - lambda) - 1) / (2 - lambda)   where x < 0
///
/// with one parameter a and lambda = 0.001 + 1.998 sigmoid(a), so that both powers are above 0 and the image is all of
/// the line (at 0 and 2 it would be half of it for one sign only in the limit). The identity is a = 0.
///
/// Yeo and Johnson, "A new family of power transformations to improve normality or symmetry", 2000,
/// https://doi.org/10.1093/biomet/87.4.954, eq. 2.1.
class YeoJohnson : public Univariate {
 public:
  using Options = NoOptions;
  explicit YeoJohnson(const Options&) {}

  int64_t parameters() const override { return 1; }
  Mapped forward(const Tensor& x, const Tensor& parameters) const override;
  Mapped inverse(const Tensor& y, const Tensor& parameters) const override;
  Json spec() const override { return write("yeo_johnson", Options{}); }
};

}  // namespace diffeo
