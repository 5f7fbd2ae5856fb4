#pragma once

#include "diffeo/flows/distribution.h"

namespace diffeo {

/// Von Mises distribution on a torus, independent angles; location and log concentration (kappa) are trainable.
///
///   log p(x) = sum of kappa cos(x - location) - log(2 pi I0(kappa))
///
/// Angles beyond [-pi, pi) are taken modulo 2 pi. Gradients of a draw reach the location, not the concentration, since
/// the sampler rejects: Best and Fisher, "Efficient simulation of the von Mises distribution", 1979,
/// https://doi.org/10.2307/2346732.
class VonMises : public Distribution {
 public:
  struct Options {
    int64_t features = 0;
    double concentration = 1;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{required("features", &O::features, "D"),
                        optional("concentration", &O::concentration, "kappa at the start, above 0")};
    }
  };

  explicit VonMises(const Options& options);
  Json spec() const override { return write("von_mises", options_); }

 private:
  Tensor evaluate(const Tensor& x, const Tensor& context) override;
  Drawn simulate(at::IntArrayRef batch, const Tensor& context) override;
  Tensor concentration() const;  ///< kappa (D)

  Options options_;
  Tensor location_, log_concentration_;  ///< (D)
};

/// Angles (n) from von Mises distributions with location 0 and concentrations kappa (n), in float64 on its device.
Tensor von_mises_angles(const Tensor& kappa);

}  // namespace diffeo
