#pragma once

#include "diffeo/layers/base/layer.h"

namespace diffeo {

/// y_i = x_order[i], log_det = 0: the features in another order. All of them live on the same axis.
class Permutation : public Layer {
 public:
  struct Options {
    int64_t features = 0;
    std::string kind = "reverse";
    std::vector<int64_t> order;
    int64_t seed = 0;
    Json axis = nullptr;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{
          required("features", &O::features, "D"),
          optional("kind", &O::kind, "reverse, random (by seed) or fixed (by order)"),
          optional("order", &O::order, "of a fixed permutation: which feature comes first, second, ..., from 0"),
          optional("seed", &O::seed, "seed of a random permutation"),
          optional("axis", &O::axis,
                   "where each feature lives: null (all reals), [lower, upper] (null for no end), "
                   "or \"circle\" (angles in [-pi, pi))")};
    }
  };

  explicit Permutation(const Options& options);

  Traits traits() const override { return {.constant_log_det = true}; }
  Json spec() const override { return write("permutation", options_); }

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;
  Scored carry_score(const Tensor& points, const Tensor& score, const Tensor& context, Direction direction) override;

  Options options_;
  Tensor order_, inverse_order_;
};

}  // namespace diffeo
