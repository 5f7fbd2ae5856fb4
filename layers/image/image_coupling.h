#pragma once

#include "diffeo/layers/base/univariate.h"
#include "diffeo/layers/nets/conv_net.h"

namespace diffeo {

/// Keeps some values of an image and maps each of the others by a univariate map whose parameters a convolutional
/// network makes of the kept ones and the context.
///
/// Kept are the first C/2 channels (mask channels), or in all channels the pixels of even row plus column
/// (checkerboard); `flip` keeps the others. A context is C values that every pixel sees, or with `context_image` an
/// image (c, h, w), flat in `context_layout`, whose sides are those of x times a power of two: it is squeezed to fit.
///
/// With the affine map and `init_scale` 0, moving the channels that a factor_out takes off next, it is the learned
/// prior of Glow: N(x2; mean(x1), scale(x1)) = N(y2; 0, 1) e^log_det.
///
/// Dinh et al. 2017, https://arxiv.org/abs/1605.08803, sections 3.2 to 3.4; Kingma and Dhariwal, "Glow", 2018,
/// https://arxiv.org/abs/1807.03039, section 3.3.
class ImageCoupling : public Layer {
 public:
  struct Options {
    std::vector<int64_t> shape;
    Json map = {{"type", "affine"}};
    ConvNetOptions net;
    std::string mask = "channels";
    bool flip = false;
    int64_t context = 0;
    std::vector<int64_t> context_image;
    std::string context_layout = "nchw";
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{
          required("shape", &O::shape, "[C, H, W]; C at least 2 for mask channels"),
          optional("map", &O::map, "spec of the univariate map of the moved values"),
          optional("net", &O::net, "the conditioner"),
          optional("mask", &O::mask, "what is kept: channels (the first C/2) or checkerboard (every second pixel)"),
          optional("flip", &O::flip, "keep what would be moved, and move what would be kept"),
          optional("context", &O::context, "size of a context that every pixel sees, 0 for none"),
          optional("context_image", &O::context_image, "[c, h, w] of a context that is an image, flat; empty for none"),
          optional("context_layout", &O::context_layout, "nchw or nhwc")};
    }
  };

  explicit ImageCoupling(const Options& options);

  Traits traits() const override { return map_->traits(); }
  Json spec() const override;

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;
  Mapped moved(const Tensor& images, const Tensor& context, bool inverse);
  /// What the network makes of pixels (*batch, H, W, inputs): (*batch, H, W, moved in a pixel, P).
  Tensor parameters_from(const Tensor& seen, const Tensor& context);

  Options options_;
  UnivariatePtr map_;
  NetPtr net_;
  int64_t first_ = 0, count_ = 0;             ///< the channels that are moved (all, of a checkerboard)
  Tensor kept_pixels_, moved_pixels_, mask_;  ///< of a checkerboard: indices, and (H, W, 1) with 1 for the kept
  Tensor order_;                              ///< where each pixel stands in (kept, moved)
};

}  // namespace diffeo
