#pragma once

#include "diffeo/flows/distribution.h"

namespace diffeo {

/// Mixture of K normals with independent features; weights, means and deviations are trainable.
///
///   log p(x) = log of the sum over k of w_k N(x; mean_k, deviation_k)
///
/// Draws are reparametrised within the component that was drawn: gradients of a draw reach means and deviations, but
/// not the weights.
class Mixture : public Distribution {
 public:
  struct Options {
    int64_t features = 0;
    int64_t components = 8;
    double spread = 2;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{required("features", &O::features, "D"), optional("components", &O::components, "K"),
                        optional("spread", &O::spread, "standard deviation of the means at the start")};
    }
  };

  explicit Mixture(const Options& options);
  Json spec() const override { return write("mixture", options_); }

 private:
  Tensor evaluate(const Tensor& x, const Tensor& context) override;
  Drawn simulate(at::IntArrayRef batch, const Tensor& context) override;

  Options options_;
  Tensor logits_;              ///< (K), of the weights
  Tensor means_, log_scales_;  ///< (K, D)
};

}  // namespace diffeo
