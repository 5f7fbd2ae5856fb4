#pragma once

#include "diffeo/layers/base/univariate.h"
#include "diffeo/layers/nets/net.h"

namespace diffeo {

/// Maps each feature by a univariate map with parameters of its own: learned ones, or, where there is a context, those
/// that a network makes of it.
///
///   y_i = map(x_i; theta_i),   theta = learned (D, P) or net(c),   log_det = that of the map
class Elementwise : public Layer {
 public:
  struct Options {
    int64_t features = 0;
    int64_t context = 0;
    Json map = {{"type", "affine"}};
    NetOptions net;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{required("features", &O::features, "D"),
                        optional("context", &O::context, "C, size of the context, 0 for none"),
                        optional("map", &O::map, "spec of the univariate map"),
                        optional("net", &O::net, "the network from the context to the parameters")};
    }
  };

  explicit Elementwise(const Options& options);

  Traits traits() const override { return map_->traits(); }
  Json spec() const override;

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;
  Scored carry_score(const Tensor& points, const Tensor& score, const Tensor& context, Direction direction) override;

  Tensor parameters_for(const Tensor& context);

  Options options_;
  UnivariatePtr map_;
  NetPtr net_;         ///< null without a context
  Tensor parameters_;  ///< (D, P), undefined with a context or where P is 0
};

}  // namespace diffeo
