#pragma once

#include "diffeo/layers/base/univariate.h"

namespace diffeo {

/// y = e^s x + t per feature, started from data: after the first batch that goes forward in training mode and has at
/// least two rows, that batch has mean 0 and deviation 1. log_det = sum of s, with s in [-40, 40].
///
/// A column that is constant in that batch is only shifted. Nothing is initialised in evaluation mode, by the inverse,
/// or by a batch with NaN or infinite values; until then y = x. Whether it was is saved with the weights, in the
/// buffer `initialised`.
///
/// Kingma and Dhariwal, "Glow", 2018, https://arxiv.org/abs/1807.03039, section 3.1.
class ActNorm : public Layer {
 public:
  struct Options {
    int64_t features = 0;
    static constexpr auto fields() { return std::tuple{required("features", &Options::features, "D")}; }
  };

  explicit ActNorm(const Options& options);

  Traits traits() const override { return {.constant_log_det = true}; }
  Json spec() const override { return write("actnorm", options_); }

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;
  Scored carry_score(const Tensor& points, const Tensor& score, const Tensor& context, Direction direction) override;

  bool initialised();
  void initialise(const Tensor& x);

  /// (s, t) for each feature, (D, 2).
  Tensor map_parameters() const;

  Options options_;
  UnivariatePtr map_;         ///< affine
  Tensor log_scale_, shift_;  ///< (D)
  Tensor initialised_;        ///< 0 or 1
  bool seen_initialised_ = false;
};

}  // namespace diffeo
