#pragma once

#include "diffeo/flows/distribution.h"

namespace diffeo {

/// Normal distribution with a trainable mean and full covariance L L^T, standard at the start.
///
/// L is lower triangular, its lower part and the logs of its diagonal in one parameter `cholesky` (D, D):
///   log p(x) = log N(L^-1 (x - mean); 0, 1) - sum over i of log L_ii
class FullNormal : public Distribution {
 public:
  struct Options {
    int64_t features = 0;
    static constexpr auto fields() { return std::tuple{required("features", &Options::features, "D")}; }
  };

  explicit FullNormal(const Options& options);
  Json spec() const override { return write("full_normal", options_); }

 private:
  Tensor evaluate(const Tensor& x, const Tensor& context) override;
  Drawn simulate(at::IntArrayRef batch, const Tensor& context) override;
  Tensor factor() const;  ///< L

  Options options_;
  Tensor mean_;      ///< (D)
  Tensor cholesky_;  ///< (D, D)
};

}  // namespace diffeo
