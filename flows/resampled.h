#pragma once

#include "diffeo/flows/distribution.h"
#include "diffeo/layers/nets/net.h"

namespace diffeo {

/// Standard normal proposals, each accepted with a learned probability a(z); the T-th one is accepted in any case.
///
///   log p(z) = log N(z) + log((1 - alpha) a(z) / Z + alpha),   Z = E_N[a],   alpha = (1 - Z)^(T - 1)
///
/// Holes and separate modes that a bijection cannot make come from a. In training, Z is a running average of estimates
/// from `samples` proposals, with the gradient of the newest. In evaluation it is computed from 65 536 points of a
/// Sobol sequence at the first use after training, and kept with the weights; call `update_normaliser` after changing
/// weights by hand. Draws carry no gradient.
///
/// Stimper, Schoelkopf and Hernandez-Lobato, "Resampling Base Distributions of Normalizing Flows", 2022,
/// https://arxiv.org/abs/2110.15828, section 3; Bauer and Mnih, 2019, https://arxiv.org/abs/1810.11428.
class Resampled : public Distribution {
 public:
  struct Options {
    int64_t features = 0;
    int64_t truncation = 100;
    NetOptions net;
    int64_t samples = 1024;
    double momentum = 0.05;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{
          required("features", &O::features, "D"),
          optional("truncation", &O::truncation, "T, proposals before one is taken in any case, at least 2"),
          optional("net", &O::net, "the network from z to the logit of a"),
          optional("samples", &O::samples, "proposals for each estimate of Z in training"),
          optional("momentum", &O::momentum, "weight of each new estimate in the running average, in (0, 1]")};
    }
  };

  explicit Resampled(const Options& options);
  Json spec() const override { return write("resampled", options_); }

  /// Computes Z for the weights as they are.
  void update_normaliser();

 private:
  Tensor evaluate(const Tensor& z, const Tensor& context) override;
  Drawn simulate(at::IntArrayRef batch, const Tensor& context) override;

  Tensor logit(const Tensor& z) { return net_->forward(z).squeeze(-1); }
  Tensor normaliser();  ///< Z, a scalar

  Options options_;
  NetPtr net_;
  Tensor normaliser_;  ///< Z, below 0 before the first estimate
  Tensor exact_;       ///< 1 if normaliser_ is that of the weights, 0 if it is a running average
};

}  // namespace diffeo
