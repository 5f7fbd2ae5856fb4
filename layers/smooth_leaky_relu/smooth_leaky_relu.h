#pragma once

#include "diffeo/layers/base/univariate.h"

namespace diffeo {

/// A leaky rectifier without a corner and without parameters:
///
///   y = a x + (1 - a) log(1 + e^x),   plus x with `residual`
///   log dy/dx = log(a + (1 - a) / (1 + e^-x)),   1 more inside with `residual`
///
/// The inverse is found by Newton's method to the last digits; its derivatives are those of the implicit function.
///
/// Chao et al., "Training energy-based normalizing flow with score-matching objectives", 2023,
/// https://arxiv.org/abs/2305.15267, use a = 0.3.
class SmoothLeakyRelu : public Univariate {
 public:
  struct Options {
    double slope = 0.3;
    bool residual = false;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{optional("slope", &O::slope, "a, the slope far on the negative side, above 0"),
                        optional("residual", &O::residual, "add x, as between convolutions")};
    }
  };

  explicit SmoothLeakyRelu(const Options& options);

  int64_t parameters() const override { return 0; }
  Mapped forward(const Tensor& x, const Tensor& parameters) const override;
  Mapped inverse(const Tensor& y, const Tensor& parameters) const override;
  Traits traits() const override { return {.closed_inverse = false}; }
  Json spec() const override { return write("smooth_leaky_relu", options_); }

 private:
  Options options_;
};

}  // namespace diffeo
