#pragma once

#include "diffeo/flows/distribution.h"

namespace diffeo {

/// Mixture of K normals with full covariances; weights, means and factors are trainable.
///
///   log p(x) = log of the sum over k of w_k N(x; mean_k, L_k L_k^T)
///
/// L_k is lower triangular, its lower part and the logs of its diagonal in one parameter `cholesky` (K, D, D). Draws
/// are reparametrised within the component that was drawn: gradients of a draw reach means and factors, but not the
/// weights.
class FullMixture : public Distribution {
 public:
  struct Options {
    int64_t features = 0;
    int64_t components = 4;
    double spread = 2;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{required("features", &O::features, "D"), optional("components", &O::components, "K"),
                        optional("spread", &O::spread, "standard deviation of the means at the start")};
    }
  };

  explicit FullMixture(const Options& options);
  Json spec() const override { return write("full_mixture", options_); }

  /// Sets weights (K), positive; means (K, D); covariances (K, D, D), positive definite. Throws Error for other shapes
  /// and for a covariance that has no Cholesky factor.
  void set(const Tensor& weights, const Tensor& means, const Tensor& covariances);
  /// log w_k + log N(x; mean_k, L_k L_k^T) of rows x (n, D): (n, K), nats.
  Tensor log_joint(const Tensor& x) const;

 private:
  Tensor evaluate(const Tensor& x, const Tensor& context) override;
  Drawn simulate(at::IntArrayRef batch, const Tensor& context) override;
  Tensor factors() const;  ///< L, (K, D, D)

  Options options_;
  Tensor logits_;    ///< (K), of the weights
  Tensor means_;     ///< (K, D)
  Tensor cholesky_;  ///< (K, D, D)
};

/// How the expectation-maximisation algorithm goes about.
struct MixtureFitOptions {
  int64_t components = 4;
  int64_t iterations = 200;      ///< at most
  double tolerance = 1e-6;       ///< nats per row: ends when the mean log-likelihood grows by less
  double regularisation = 1e-4;  ///< added to the variances, in units of those of all rows
  int64_t restarts = 3;          ///< the most likely of so many beginnings is kept
};

/// The mixture of `options.components` normals that expectation and maximisation in turn find for rows x (n, D), from
/// means that are rows far apart (k-means++). In the dtype and on the device of x; randomness comes from torch's
/// default generator. Throws Error for fewer rows than components.
///
/// Dempster, Laird and Rubin, "Maximum likelihood from incomplete data via the EM algorithm", 1977.
std::shared_ptr<FullMixture> fit_full_mixture(const Tensor& x, const MixtureFitOptions& options);

}  // namespace diffeo
