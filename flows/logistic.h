#pragma once

#include "diffeo/flows/distribution.h"

namespace diffeo {

/// Logistic distribution with independent features; standard unless `trainable`.
///
///   log p(x) = sum of log sigmoid(z) + log sigmoid(-z) - log s,   z = (x - location) / s
///
/// Dinh et al., "NICE", 2014, https://arxiv.org/abs/1410.8516, section 3.4.
class Logistic : public Distribution {
 public:
  struct Options {
    int64_t features = 0;
    bool trainable = false;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{required("features", &O::features, "D"),
                        optional("trainable", &O::trainable, "learn location and log scale")};
    }
  };

  explicit Logistic(const Options& options);
  Json spec() const override { return write("logistic", options_); }

 private:
  Tensor evaluate(const Tensor& x, const Tensor& context) override;
  Drawn simulate(at::IntArrayRef batch, const Tensor& context) override;

  Options options_;
  Tensor location_, log_scale_;  ///< (D), undefined unless trainable
};

}  // namespace diffeo
