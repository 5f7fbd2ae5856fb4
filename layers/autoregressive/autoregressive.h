#pragma once

#include "diffeo/layers/autoregressive/affine_tile.h"
#include "diffeo/layers/base/univariate.h"
#include "diffeo/layers/nets/made.h"

namespace diffeo {

/// Maps each feature by a univariate map whose parameters a masked network makes of the features before it in an order,
/// and of the context.
///
///   y_i = map(x_i; net_i(x_1 ... x_(i-1), c)),   log_det = that of the map
///
/// Forward (from data, for densities) is one pass of the network. Inverse finds one feature after another: at the cost
/// of one pass too, each hidden unit being computed once (made_inverse.h), where no gradients are recorded (under
/// NoGradGuard, or with nothing that requires one) and the layer is on the CPU, or on a GPU with the affine map and a
/// network whose hidden units fit in a block's shared memory (affine_inverse.h); otherwise, for training through the
/// inverse, and in training with dropout or batch normalisation, in D passes that autograd sees.
/// Wrap the layer in Inverse for training through samples in one pass (an inverse autoregressive flow). With batch
/// normalisation, the two are inverse to each other in evaluation mode only.
///
/// Papamakarios et al., "Masked Autoregressive Flow", 2017, https://arxiv.org/abs/1705.07057, eq. 3-5;
/// Kingma et al., "Inverse Autoregressive Flow", 2016, https://arxiv.org/abs/1606.04934.
class Autoregressive : public Layer {
 public:
  struct Options {
    int64_t features = 0;
    int64_t context = 0;
    Json map = {{"type", "affine"}};
    NetOptions net;
    std::string order = "natural";
    int64_t order_seed = 0;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{required("features", &O::features, "D"),
                        optional("context", &O::context, "C, size of the context, 0 for none"),
                        optional("map", &O::map, "spec of the univariate map"),
                        optional("net", &O::net, "the masked network"),
                        optional("order", &O::order, "in which features see each other: natural, reverse or random"),
                        optional("order_seed", &O::order_seed, "seed of a random order")};
    }
  };

  explicit Autoregressive(const Options& options);

  Traits traits() const override;
  Json spec() const override;

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;
  /// The inverse is found without a graph, and given the derivatives of the implicit function that it is.
  Scored carry_score(const Tensor& points, const Tensor& score, const Tensor& context, Direction direction) override;

  Mapped unmap_filling(const Tensor& y, const Tensor& context, const MadePlan& plan) const;
  void solve_any(const MadePlan& plan, const Tensor& context, int64_t rows, const Tensor& points,
                 const Tensor& log_det) const;
  void solve_affine(const MadePlan& plan, const Tensor& context, int64_t rows, const Tensor& points,
                    const Tensor& log_det) const;
  std::optional<Mapped> unmap_on_gpu(const Tensor& y, const Tensor& context, const MadePlan& plan) const;
  Mapped unmap_passing(const Tensor& y, const Tensor& context);
  Tensor parameters_from(const Tensor& x, const Tensor& context);

  Options options_;
  UnivariatePtr map_;
  std::optional<AffineTile> affine_;  ///< if that is what the map is
  std::vector<int64_t> sequence_;     ///< the features in their order
  MaskedNetPtr net_;
};

}  // namespace diffeo
