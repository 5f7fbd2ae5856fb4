#pragma once

#include "diffeo/samplers/target.h"

namespace diffeo {

/// A normalised mixture of round normals of one deviation: log p(x) = log sum_k w_k N(x; m_k, scale^2 I).
///
/// Without `means` they are evenly on a circle of `radius` in the plane of the first two features ("ring"), or on all
/// 2^D points with coordinates +-radius ("corners").
class GaussianMixture : public Target {
 public:
  struct Options {
    int64_t features = 2;
    std::vector<std::vector<double>> means;
    std::vector<double> weights;
    double scale = 1;
    std::string arrangement = "ring";
    int64_t components = 8;
    double radius = 4;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{optional("features", &O::features, "D, at least 1; at least 2 for a ring"),
                        optional("means", &O::means, "K means of D numbers; empty: as arranged"),
                        optional("weights", &O::weights, "K numbers above 0, in any unit; empty: equal ones"),
                        optional("scale", &O::scale, "standard deviation of each component, above 0"),
                        optional("arrangement", &O::arrangement, "ring or corners, without means"),
                        optional("components", &O::components, "K of a ring"),
                        optional("radius", &O::radius, "of the ring, or half the side of the corners' cube")};
    }
  };

  explicit GaussianMixture(const Options& options);
  std::string name() const override { return "gaussian_mixture"; }
  Json spec() const override { return write(name(), options_); }
  std::optional<double> log_normalizer() const override { return 0; }

 private:
  Tensor evaluate(const Tensor& x) override;
  Sloped evaluate_with_gradient(const Tensor& x) override;
  Tensor components_at(const Tensor& x);  ///< (*batch, K): log w_k N(x; m_k, scale^2 I)

  struct Components {
    Tensor means, log_weights;  ///< (K, D) and (K)
  };
  /// The components in the dtype and on the device of x, kept until other ones are asked for.
  const Components& components_like(const Tensor& x);

  Options options_;
  Components exact_;  ///< float64 on the CPU: they serve points of every dtype and device
  Components near_;   ///< those of the last points
};

}  // namespace diffeo
