#pragma once

#include "diffeo/layers/base/layer.h"

namespace diffeo {

/// y = Q R x + b: Q a rotation made of D reflections, R upper triangular with a positive diagonal.
///
/// Both lie in one parameter `qr` (D, D) as LAPACK's geqrf has them: R in the upper triangle, its diagonal through
/// softplus(qr_ii) + 1e-3, and below the diagonal the vectors of the reflections, with ones on it. log_det = sum over i
/// of log R_ii; the inverse is Q^T and one triangular solve. Starts at the identity.
///
/// Hoogeboom et al., "Emerging Convolutions for Generative Normalizing Flows", 2019, https://arxiv.org/abs/1901.11137,
/// section 4.2; Tomczak and Welling, 2016, https://arxiv.org/abs/1611.09630, eq. 9.
class QrLinear : public Layer {
 public:
  struct Options {
    int64_t features = 0;
    bool bias = true;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{required("features", &O::features, "D"), optional("bias", &O::bias, "whether to add b")};
    }
  };

  explicit QrLinear(const Options& options);

  Traits traits() const override { return {.constant_log_det = true}; }
  Json spec() const override { return write("qr_linear", options_); }

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;

  Options options_;
  Tensor qr_;    ///< (D, D)
  Tensor bias_;  ///< (D), or undefined
};

}  // namespace diffeo
