#pragma once

#include "diffeo/layers/base/layer.h"

namespace diffeo {

/// Whole numbers x made continuous by noise that is learned: y = x + u, u in (0, 1)^D drawn from a density q(u | x).
///
///   e ~ N(0, 1),   l = layers^-1(e; c),   u = Phi(l),   log_det = -log q(u | x) = log N(l) + log|det dl/de| - log N(e)
///
/// with Phi the normal distribution function and c = 2 (x + 1/2) / values - 1 the context of the layers. Backwards x is
/// y rounded down, and log_det is log q(y - x | x). The layer is random: what a flow makes of one draw is on average no
/// more than the log probability of x. Without layers u is uniform, and the bound that of uniform noise.
///
/// Ho et al., "Flow++", 2019, https://arxiv.org/abs/1902.00275, section 3.1; the bookkeeping is that of Nielsen et al.,
/// "SurVAE Flows", 2020, https://arxiv.org/abs/2007.02731.
class VariationalDequantization : public Layer {
 public:
  struct Options {
    int64_t features = 0;
    std::vector<Json> layers;
    double values = 256;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{
          required("features", &O::features, "D"),
          optional("layers", &O::layers,
                   "list of specs of layers of D features, each with a context of D values or none, from l to e"),
          optional("values", &O::values, "x is 0, ..., values - 1; the scale of what the layers see of it")};
    }
  };

  explicit VariationalDequantization(const Options& options);

  Traits traits() const override { return {.random = true}; }
  Json spec() const override;

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;
  /// How far u stays from 0 and 1: x + u has to round down to x again in float32.
  double margin() const;
  Tensor context_of(const Tensor& x) const;  ///< c; undefined where no layer takes one

  Options options_;
  LayerPtr layers_;  ///< one after another; null for uniform noise
};

}  // namespace diffeo
