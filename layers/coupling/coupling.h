#pragma once

#include "diffeo/layers/coupling/coupling_op.h"
#include "diffeo/layers/nets/net.h"

namespace diffeo {

/// Keeps some features, and maps each of the others by a univariate map whose parameters a network makes of the
/// kept ones and the context.
///
///   y_kept = x_kept,   y_moved = map(x_moved; net(x_kept, c)),   log_det = that of the map
///
/// With `kept_map`, the kept features are mapped too, after they have been read, each by a map with parameters of its
/// own (the "unconditional transform" of Durkan et al.). Where the map lives on circles, the network sees the cosine
/// and sine of the kept angles.
///
/// Dinh et al. 2017, https://arxiv.org/abs/1605.08803, eq. 4-8; Durkan et al., "Neural Spline Flows", 2019,
/// https://arxiv.org/abs/1906.04032, section 3.
class Coupling : public Layer {
 public:
  struct Options {
    int64_t features = 0;
    int64_t context = 0;
    Json map = {{"type", "affine"}};
    NetOptions net;
    std::string mask = "half";
    bool flip = false;
    int64_t mask_seed = 0;
    Json kept_map = nullptr;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{
          required("features", &O::features, "D, at least 2"),
          optional("context", &O::context, "C, size of the context, 0 for none"),
          optional("map", &O::map, "spec of the univariate map of the moved features"),
          optional("net", &O::net, "the conditioner"),
          optional("mask", &O::mask,
                   "which features are kept: half (the first D/2), alternating (even ones) or random"),
          optional("flip", &O::flip, "keep the features that would be moved, and move those that would be kept"),
          optional("mask_seed", &O::mask_seed, "seed of a random mask"),
          optional("kept_map", &O::kept_map, "spec of a map of the kept features with parameters of its own, or null")};
    }
  };

  explicit Coupling(const Options& options);

  Traits traits() const override;
  Json spec() const override;

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;
  Retraced unmap_and_map(const Tensor& y, const Tensor& context) override;
  Scored carry_score(const Tensor& points, const Tensor& score, const Tensor& context, Direction direction) override;

  Mapped apply(const Tensor& x, const Tensor& context, bool inverse);
  Tensor parameters_from(const Tensor& kept, const Tensor& context);

  Options options_;
  coupling::PlanPtr plan_;  ///< the maps and the features that they move
  NetPtr net_;
  Tensor kept_parameters_;  ///< (kept, P) of kept_map
};

}  // namespace diffeo
