#pragma once

#include "diffeo/layers/base/layer.h"

namespace diffeo {

/// Space to channels: each block of 2 x 2 pixels becomes one pixel of four times the channels, log_det = 0.
///
///   y[4 c + 2 i + j, h, w] = x[c, 2 h + i, 2 w + j],   (C, H, W) -> (4 C, H/2, W/2)
///
/// Dinh et al. 2017, https://arxiv.org/abs/1605.08803, section 3.6.
class Squeeze : public Layer {
 public:
  struct Options {
    std::vector<int64_t> shape;
    static constexpr auto fields() {
      return std::tuple{required("shape", &Options::shape, "[C, H, W] before it, H and W even")};
    }
  };

  /// Throws SpecError for odd sides.
  explicit Squeeze(const Options& options);

  Traits traits() const override { return {.constant_log_det = true}; }
  Json spec() const override { return write("squeeze", options_); }

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;

  Options options_;
};

}  // namespace diffeo
