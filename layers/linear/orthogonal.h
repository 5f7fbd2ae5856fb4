#pragma once

#include "diffeo/layers/base/layer.h"

namespace diffeo {

/// y = Q x with Q orthogonal, log_det = 0. Starts at the identity (with one reflection more where their number is odd).
///
/// `householder`: Q = H_1 ... H_K, each H_i a reflection at the plane across a row of `vectors` (K, D). An even K up to
/// D reaches every rotation. `exponential`: Q = exp(A - A^T) with the parameter A (D, D), a rotation.
///
/// Tomczak and Welling, "Improving Variational Auto-Encoders using Householder Flow", 2016,
/// https://arxiv.org/abs/1611.09630, eq. 9; Golinski et al., "Improving Normalizing Flows via Better Orthogonal
/// Parameterizations", 2019.
class Orthogonal : public Layer {
 public:
  struct Options {
    int64_t features = 0;
    std::string kind = "householder";
    int64_t reflections = 0;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{required("features", &O::features, "D, at least 2"),
                        optional("kind", &O::kind, "householder (a product of reflections) or exponential"),
                        optional("reflections", &O::reflections,
                                 "K of householder; 0: the largest even number up to D, enough for every rotation")};
    }
  };

  explicit Orthogonal(const Options& options);

  Traits traits() const override { return {.constant_log_det = true}; }
  Json spec() const override { return write("orthogonal", options_); }

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;
  Scored carry_score(const Tensor& points, const Tensor& score, const Tensor& context, Direction direction) override;
  Tensor matrix() const;  ///< Q

  Options options_;
  Tensor vectors_;  ///< (K, D) of householder
  Tensor skew_;     ///< (D, D), A of exponential
};

}  // namespace diffeo
