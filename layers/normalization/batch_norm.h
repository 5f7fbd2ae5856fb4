#pragma once

#include "diffeo/layers/base/layer.h"

namespace diffeo {

/// y = e^g (x - m) / sqrt(v + eps) + b per feature, log_det = sum of g - log(v + eps) / 2.
///
/// In training, forward takes the mean m and variance v of the batch (through which gradients flow) and notes them in
/// running averages; in evaluation, for a batch of fewer than two rows, and in the inverse, m and v are those averages.
/// So forward and inverse undo each other in evaluation mode only. Batches with NaN or infinite values leave the
/// running averages alone.
///
/// Dinh et al., "Density estimation using Real NVP", 2017, https://arxiv.org/abs/1605.08803, section 3.7;
/// Papamakarios et al., "Masked Autoregressive Flow", 2017, https://arxiv.org/abs/1705.07057, appendix B.
class BatchNorm : public Layer {
 public:
  struct Options {
    int64_t features = 0;
    double momentum = 0.1;
    double eps = 1e-5;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{
          required("features", &O::features, "D"),
          optional("momentum", &O::momentum, "weight of each new batch in the running averages, in (0, 1]"),
          optional("eps", &O::eps, "added to the variance, above 0")};
    }
  };

  explicit BatchNorm(const Options& options);

  Json spec() const override { return write("batch_norm", options_); }

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;

  Options options_;
  Tensor log_scale_, shift_;                ///< (D)
  Tensor running_mean_, running_variance_;  ///< (D)
};

}  // namespace diffeo
