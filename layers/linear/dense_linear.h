#pragma once

#include "diffeo/layers/base/affine_map.h"
#include "diffeo/layers/base/layer.h"
#include "diffeo/layers/linear/kept_factors.h"

namespace diffeo {

/// y = W x + b with any invertible matrix W, held as it is.
///
/// Nothing keeps W from becoming singular but log|det W|, which takes O(D^3) with its gradient; energy-based training
/// leaves it out (constant_log_det_guard.h) and pays for products of the batch only. Outside of training the LU factors
/// are kept until W changes. The inverse solves by LU.
///
/// Chao et al., "Training energy-based normalizing flow with score-matching objectives", 2023,
/// https://arxiv.org/abs/2305.15267.
class DenseLinear : public Layer, public AffineMap {
 public:
  struct Options {
    int64_t features = 0;
    bool bias = true;
    std::string start = "identity";
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{required("features", &O::features, "D"), optional("bias", &O::bias, "whether to add b"),
                        optional("start", &O::start,
                                 "the first W: identity, minus_identity or rotation (random, from torch's generator)")};
    }
  };

  explicit DenseLinear(const Options& options);

  Traits traits() const override { return {.constant_log_det = true}; }
  Json spec() const override { return write("dense_linear", options_); }
  /// Sets W and b so that points of this mean (D) and covariance (D, D) get mean 0 and covariance 1: W is the symmetric
  /// root of the inverse covariance, whose eigenvalues count as at least a millionth of the largest.
  /// Throws Error for a layer without b, and for a covariance that is no number or 0.
  void whiten(const Tensor& mean, const Tensor& covariance);

  Tensor linear(const Tensor& v) override;
  Tensor transposed(const Tensor& u) override;
  Tensor offset() override { return bias_; }

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;
  Tensor map_value(const Tensor& x, const Tensor& context) override;
  Tensor unmap_value(const Tensor& y, const Tensor& context) override;

  bool in_graph() const { return at::GradMode::is_enabled() && weight_.requires_grad(); }
  Factors factors();
  Tensor log_det();  ///< scalar

  Options options_;
  Tensor weight_;  ///< (D, D)
  Tensor bias_;    ///< (D), or undefined
  KeptFactors kept_;
};

}  // namespace diffeo
