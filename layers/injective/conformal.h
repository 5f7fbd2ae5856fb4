#pragma once

#include "diffeo/layers/base/tangents.h"

namespace diffeo {

/// A conformal embedding of R^d in R^D: padding with zeros, then blocks of a rotation, a scale, a shift and a special
/// conformal transformation in R^D. All of them stretch the tangents of a point alike, by a factor lambda:
///
///   volume = d log lambda,  lambda = product of the blocks' e^a / (1 - 2 b.y + |b|^2 |y|^2),  y = e^a Q x + c
///
/// forward goes back through the blocks and keeps the first d features; it is the inverse's exact left inverse, and a
/// point that is off the manifold goes to one on it. A rotation is a product of reflections. A special conformal
/// transformation is an inversion at the unit sphere, a shift by -b and an inversion again; it has one point of R^D
/// without an image, b / |b|^2, near to which values are cut off.
///
/// Ross and Cresswell, "Tractable Density Estimation on Learned Manifolds with Conformal Embedding Flows", 2021,
/// https://arxiv.org/abs/2106.05275, section 4.
class Conformal : public InjectiveLayer {
 public:
  struct Options {
    int64_t features = 0;
    int64_t latent = 0;
    int64_t blocks = 2;
    int64_t reflections = 0;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{required("features", &O::features, "D, at least 2"),
                        required("latent", &O::latent, "d, the dimension of the manifold, at least 1 and below D"),
                        optional("blocks", &O::blocks, "rotations, scales, shifts and special conformal maps"),
                        optional("reflections", &O::reflections,
                                 "of each rotation, an even number; 0: enough to turn R^d to anywhere in R^D")};
    }
  };

  explicit Conformal(const Options& options);

  Json spec() const override { return write("conformal", options_); }

  Tensor forward_value(const Tensor& x, const Tensor& context) override;
  Tensor inverse_value(const Tensor& y, const Tensor& context) override;
  Pushed push_forward(const Tensor& x, const Tensor& tangents, const Tensor& context) override;
  Pushed push_inverse(const Tensor& y, const Tensor& tangents, const Tensor& context) override;

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;

  Options options_;
  int64_t reflections_;
  Tensor vectors_;    ///< (blocks, K, D), of the reflections
  Tensor log_scale_;  ///< (blocks), a
  Tensor shift_;      ///< (blocks, D), c
  Tensor bend_;       ///< (blocks, D), b
};

}  // namespace diffeo
