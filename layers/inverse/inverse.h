#pragma once

#include "diffeo/layers/base/layer.h"

namespace diffeo {

/// The same layer, walked the other way: an inverse autoregressive flow is Inverse of a masked autoregressive one.
class Inverse : public Layer {
 public:
  struct Options {
    Json layer;
    static constexpr auto fields() {
      return std::tuple{required("layer", &Options::layer, "spec of the layer to walk backwards")};
    }
  };

  explicit Inverse(const Options& options);
  explicit Inverse(LayerPtr layer);

  Traits traits() const override;
  Json spec() const override;

 private:
  Mapped map(const Tensor& x, const Tensor& context) override { return layer_->inverse(x, context); }
  Mapped unmap(const Tensor& y, const Tensor& context) override { return layer_->forward(y, context); }

  Scored carry_score(const Tensor& points, const Tensor& score, const Tensor& context, Direction direction) override {
    return direction == Direction::forward ? layer_->inverse_with_score(points, score, context)
                                           : layer_->forward_with_score(points, score, context);
  }

  LayerPtr layer_;
};

}  // namespace diffeo
