#pragma once

#include "diffeo/layers/base/layer.h"
#include "diffeo/layers/linear/kept_factors.h"

namespace diffeo {

/// A k x k convolution of an image [C, H, W] with zeros around it that gives an image of the same shape: any kernel
/// whose matrix is invertible.
///
///   y = w * x + b,   log_det = log|det M|,   M the (C H W)^2 matrix of x -> w * x
///
/// The determinant and the inverse build M from the images of all unit vectors and factorise it: (C H W)^3 once for
/// each value of w, and 2 (C H W)^2 numbers of memory while the factors are kept. Energy-based training leaves the
/// determinant out (constant_log_det_guard.h) and so never builds M.
///
/// Chao et al., "Training energy-based normalizing flow with score-matching objectives", 2023,
/// https://arxiv.org/abs/2305.15267.
class Convolution : public Layer {
 public:
  struct Options {
    int64_t channels = 0;
    int64_t height = 0;
    int64_t width = 0;
    int64_t kernel = 3;
    bool bias = true;
    std::string start = "identity";
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{required("channels", &O::channels, "C"),
                        required("height", &O::height, "H"),
                        required("width", &O::width, "W"),
                        optional("kernel", &O::kernel, "k, odd"),
                        optional("bias", &O::bias, "whether to add a number to each channel"),
                        optional("start", &O::start, "the first map: identity or minus_identity")};
    }
  };

  explicit Convolution(const Options& options);

  Traits traits() const override { return {.constant_log_det = true}; }
  Json spec() const override { return write("convolution", options_); }

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;
  Tensor map_value(const Tensor& x, const Tensor& context) override;
  Tensor unmap_value(const Tensor& y, const Tensor& context) override;

  Tensor convolved(const Tensor& images, const Tensor& bias) const;  ///< images (N, C, H, W)
  Tensor matrix_rows() const;                                        ///< the transpose of M
  Tensor centred(const Tensor& y) const;                             ///< y - b in rows (N, D)
  at::IntArrayRef batch_of(const Tensor& points) const { return points.sizes().slice(0, points.dim() - 3); }
  bool in_graph() const { return at::GradMode::is_enabled() && weight_.requires_grad(); }
  Factors factors();
  Tensor log_det();  ///< scalar

  Options options_;
  Tensor weight_;  ///< (C, C, k, k)
  Tensor bias_;    ///< (C), or undefined
  KeptFactors kept_;
};

}  // namespace diffeo
