#pragma once

#include "diffeo/layers/affine/affine_form.h"
#include "diffeo/layers/base/univariate.h"

namespace diffeo {

/// y = e^s x + t with parameters (a, t) per feature and s = s(a), log_det = sum of s. One fused operation.
///
/// Scale functions: `bounded` s = a / (1 + |a / cap|), so |s| < cap (default); `exp` s = a (Real NVP);
/// `sigmoid` e^s = sigmoid(a + 2) + 1e-3 and `softplus` e^s = softplus(a) + 1e-3 (as nflows has them).
/// With `volume_preserving`, the mean of s over the features is taken off, so that log_det is 0.
/// Beyond |s| = 87 (float64: 708) the factor e^s stays where it is, so that it is always a number.
///
/// Dinh et al., "Density estimation using Real NVP", 2017, https://arxiv.org/abs/1605.08803, eq. 4.
class Affine : public Univariate {
 public:
  struct Options {
    std::string scale = "bounded";
    double cap = 4;
    bool volume_preserving = false;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{
          optional("scale", &O::scale, "log scale from the parameter: bounded, exp, sigmoid or softplus"),
          optional("cap", &O::cap, "bound on |log scale| where scale is bounded"),
          optional("volume_preserving", &O::volume_preserving, "take the mean log scale off, so that log_det is 0")};
    }
  };

  explicit Affine(const Options& options);

  int64_t parameters() const override { return 2; }
  Mapped forward(const Tensor& x, const Tensor& parameters) const override;
  Mapped inverse(const Tensor& y, const Tensor& parameters) const override;
  std::vector<double> identity() const override;
  Traits traits() const override { return {.constant_log_det = options_.volume_preserving}; }
  bool separable() const override { return !options_.volume_preserving; }
  bool has_gradients(const Tensor& points) const override;
  MapGradients gradients(const Tensor& points, const Tensor& parameters, const Tensor& value, const Tensor& by_value,
                         const Tensor& by_log_det, bool inverse) const override;
  Json spec() const override { return write("affine", options_); }

 private:
  /// s less its mean over the features.
  Tensor centred_log_scale(const Tensor& parameters) const;

  Options options_;
  affine::Form form_;
};

}  // namespace diffeo
