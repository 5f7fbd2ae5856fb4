#pragma once

#include "diffeo/layers/base/layer.h"

namespace diffeo {

/// y = L U P x + b: L unit lower triangular, U upper triangular with a positive diagonal, P a fixed permutation.
///
/// The triangles lie in one parameter `lu` (D, D), as LAPACK has them; the diagonal of U is softplus(lu_ii) + 1e-3,
/// so no parameter value makes the matrix singular. log_det = sum over i of log U_ii, the inverse is two triangular
/// solves. Starts at y = P x.
///
/// Kingma and Dhariwal, "Glow", 2018, https://arxiv.org/abs/1807.03039, eq. 10-11; Oliva et al., "Transformation
/// Autoregressive Networks", 2018, https://arxiv.org/abs/1801.09819, section 3.2.1.
class LuLinear : public Layer {
 public:
  struct Options {
    int64_t features = 0;
    bool bias = true;
    std::string permute = "none";
    int64_t seed = 0;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{
          required("features", &O::features, "D"), optional("bias", &O::bias, "whether to add b"),
          optional("permute", &O::permute, "order in which the features enter: none (as they are) or random"),
          optional("seed", &O::seed, "seed of a random order")};
    }
  };

  explicit LuLinear(const Options& options);

  Traits traits() const override { return {.constant_log_det = true}; }
  Json spec() const override { return write("lu_linear", options_); }

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;

  Options options_;
  Tensor lu_;             ///< (D, D)
  Tensor bias_;           ///< (D), or undefined
  Tensor inverse_order_;  ///< where each feature of x goes before U, or undefined
};

}  // namespace diffeo
