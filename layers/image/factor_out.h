#pragma once

#include "diffeo/layers/base/layer.h"

namespace diffeo {

/// One scale of a multi-scale flow: the first channels of an image go on through further layers, the others are done.
/// Both end in one flat row, so that the base distribution stands once for all scales.
///
///   y = (layers(x_kept), x_rest),   log_det = that of the layers
///
/// A scale inside of the layers nests in the same way. What is factored out meets the base as it is; put an
/// image_coupling in front to make its mean and scale depend on what is kept.
///
/// Dinh et al. 2017, https://arxiv.org/abs/1605.08803, section 3.6, eq. 14-16.
class FactorOut : public Layer {
 public:
  struct Options {
    std::vector<int64_t> shape;
    int64_t keep = 0;
    std::vector<Json> layers;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{
          required("shape", &O::shape, "[C, H, W], C at least 2"),
          optional("keep", &O::keep, "channels that go on, the first ones; 0: C/2"),
          required("layers", &O::layers, "list of layer specs for images [keep, H, W]; the last ends in a flat row")};
    }
  };

  explicit FactorOut(const Options& options);

  Traits traits() const override { return layers_->traits(); }
  Json spec() const override;

 private:
  FactorOut(const Options& options, LayerPtr layers);
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;

  Options options_;
  LayerPtr layers_;  ///< one after another
};

}  // namespace diffeo
