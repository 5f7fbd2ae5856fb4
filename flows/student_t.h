#pragma once

#include "diffeo/flows/distribution.h"

namespace diffeo {

/// Student's t distribution with independent features, for data with heavy tails. Location, scale and degrees of
/// freedom nu = 1 + softplus(raw) > 1 of each feature are trainable.
///
///   log p(x) = sum of log G((nu + 1) / 2) - log G(nu / 2) - log(nu pi s^2) / 2 - (nu + 1) / 2 log(1 + z^2 / nu),
///   z = (x - location) / s
///
/// Jaini et al., "Tails of Lipschitz Triangular Flows", 2020, https://arxiv.org/abs/1907.04481, on why a flow needs
/// such a base; Alexanderson and Henter, "Robust model training and generalisation with Studentising flows", 2020,
/// https://arxiv.org/abs/2006.06599.
class StudentT : public Distribution {
 public:
  struct Options {
    int64_t features = 0;
    double degrees = 5;
    bool trainable = true;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{required("features", &O::features, "D"),
                        optional("degrees", &O::degrees, "degrees of freedom at the start, above 1"),
                        optional("trainable", &O::trainable, "learn location, scale and degrees of freedom")};
    }
  };

  explicit StudentT(const Options& options);
  Json spec() const override { return write("student_t", options_); }

 private:
  Tensor evaluate(const Tensor& x, const Tensor& context) override;
  Drawn simulate(at::IntArrayRef batch, const Tensor& context) override;
  Tensor degrees() const;  ///< nu (D)

  Options options_;
  Tensor location_, log_scale_, raw_degrees_;  ///< (D)
};

}  // namespace diffeo
