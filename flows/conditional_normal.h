#pragma once

#include "diffeo/flows/distribution.h"
#include "diffeo/layers/nets/net.h"

namespace diffeo {

/// Normal distribution with independent features whose mean and log deviation a network makes of the context.
///
/// The log deviation is bounded softly: s = a / (1 + |a / 7|), so |s| < 7.
class ConditionalNormal : public Distribution {
 public:
  struct Options {
    int64_t features = 0;
    int64_t context = 0;
    NetOptions net;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{required("features", &O::features, "D"),
                        required("context", &O::context, "C, size of the context, at least 1"),
                        optional("net", &O::net, "the network from the context to mean and log deviation")};
    }
  };

  explicit ConditionalNormal(const Options& options);
  Json spec() const override { return write("conditional_normal", options_); }

 private:
  Tensor evaluate(const Tensor& x, const Tensor& context) override;
  Drawn simulate(at::IntArrayRef batch, const Tensor& context) override;
  /// Mean and log deviation, (*batch, D) each.
  std::pair<Tensor, Tensor> moments(const Tensor& context);

  Options options_;
  NetPtr net_;
};

}  // namespace diffeo
