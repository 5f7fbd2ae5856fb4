#pragma once

#include "diffeo/layers/base/univariate.h"

namespace diffeo {

/// The logit of a mixture of K sigmoids: y = logit(sum_k w_k sigmoid(a_k x + b_k)), w on the simplex, a_k in (e^-3,
/// e^3).
///
/// Its slope may rise and fall K times, which makes bends of any shape, but its inverse is no formula: it is bisected
/// between the inverses of the components, and given the derivatives of the implicit function. Parameters per feature:
/// K for log a (bounded), K for b, K for log w (through a softmax).
///
/// Huang et al., "Neural Autoregressive Flows", 2018, https://arxiv.org/abs/1804.00779, eq. 8 (deep sigmoidal flow with
/// one layer).
class SigmoidMixture : public Univariate {
 public:
  struct Options {
    int64_t components = 4;
    static constexpr auto fields() { return std::tuple{optional("components", &Options::components, "K, at least 1")}; }
  };

  explicit SigmoidMixture(const Options& options);

  int64_t parameters() const override { return 3 * options_.components; }
  Mapped forward(const Tensor& x, const Tensor& parameters) const override;
  Mapped inverse(const Tensor& y, const Tensor& parameters) const override;
  std::vector<double> identity() const override;
  Traits traits() const override { return {.closed_inverse = false}; }
  Json spec() const override { return write("sigmoid_mixture", options_); }

 private:
  Options options_;
};

}  // namespace diffeo
