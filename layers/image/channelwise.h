#pragma once

#include "diffeo/layers/base/layer.h"

namespace diffeo {

/// A layer of C features applied to the channels of every pixel alike; log_det is the sum over the pixels.
///
/// So an ActNorm is one of images, a linear layer a 1 x 1 convolution, log_det = H W log|det A|, and a permutation
/// moves channels.
///
/// Kingma and Dhariwal, "Glow", 2018, https://arxiv.org/abs/1807.03039, sections 3.1 and 3.2.
class Channelwise : public Layer {
 public:
  struct Options {
    std::vector<int64_t> shape;
    Json layer;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{required("shape", &O::shape, "[C, H, W]"),
                        required("layer", &O::layer, "spec of a layer of C features")};
    }
  };

  explicit Channelwise(const Options& options);

  const LayerPtr& layer() const { return layer_; }
  Traits traits() const override { return layer_->traits(); }
  Json spec() const override { return write("channelwise", Options{options_.shape, layer_->spec()}); }

 private:
  Channelwise(const Options& options, LayerPtr layer);
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;

  Options options_;
  LayerPtr layer_;
};

}  // namespace diffeo
