#pragma once

#include "diffeo/layers/base/layer.h"

namespace diffeo {

/// Flat rows (*batch, D), as tables have them, as images (*batch, C, H, W), log_det = 0. Its inverse flattens.
///
/// In a row lie the channels one after another, each row by row (layout nchw), or the pixels one after another, each
/// with all its channels (nhwc).
class Image : public Layer {
 public:
  struct Options {
    std::vector<int64_t> shape;
    std::string layout = "nchw";
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{required("shape", &O::shape, "[C, H, W], channels, rows and columns; D = C H W"),
                        optional("layout", &O::layout, "order of the numbers in a row: nchw or nhwc")};
    }
  };

  explicit Image(const Options& options);

  Traits traits() const override { return {.constant_log_det = true}; }
  Json spec() const override { return write("image", options_); }

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;

  Options options_;
};

}  // namespace diffeo
