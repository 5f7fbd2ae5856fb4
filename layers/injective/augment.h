#pragma once

#include "diffeo/layers/base/layer.h"
#include "diffeo/layers/nets/net.h"

namespace diffeo {

/// Adds k features of noise to the D of the data, so that the layers behind it have room to move in:
///
///   y = (x, e),   e ~ q(e | x, c) = N(m, s^2),   log_det = -log q(e | x, c)
///
/// with m = 0 and s = scale for all points, or, with a network, m and s = scale exp(a) of x and the context; |a| stays
/// below 3. Backwards the noise is dropped, and log_det is log q(e | x, c). The layer is random: what a flow makes of
/// one draw is on average no more than log p(x), of several (Flow::log_prob_bound) it comes nearer, and where
/// q(e | x, c) is the flow's own density of e given x it is log p(x).
///
/// A bijection of R^D cannot tear a region apart or join two; one of R^(D+k) can do it to what is seen of it in R^D.
/// Padding with zeros instead of noise is the inverse of `project`.
///
/// Huang, Dinh and Courville, "Augmented normalizing flows", 2020, https://arxiv.org/abs/2002.07101, eq. 4.
class Augment : public Layer {
 public:
  struct Options {
    int64_t features = 0;
    int64_t noise = 0;
    double scale = 1;
    int64_t context = 0;
    Json net = nullptr;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{
          required("features", &O::features, "D"), required("noise", &O::noise, "k, features of noise, at least 1"),
          optional("scale", &O::scale, "standard deviation of the noise, above 0; with a network: at its start"),
          optional("context", &O::context, "values that the network is told beside x, C"),
          optional("net", &O::net, "network from x and the context to the noise's mean and scale; null: both fixed")};
    }
  };

  explicit Augment(const Options& options);

  Traits traits() const override { return {.random = true}; }
  Json spec() const override;

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;

  /// Mean and log of the standard deviation, (*batch, k) each.
  struct Noise {
    Tensor mean, log_scale;
  };
  Noise noise_at(const Tensor& x, const Tensor& context) const;

  Options options_;
  NetOptions net_options_;
  NetPtr net_;  ///< null for noise that is the same for all points
};

}  // namespace diffeo
