#pragma once

#include "diffeo/layers/base/layer.h"

namespace diffeo {

/// y = R x, log_det = 0: R a product of rotations in planes of two neighbouring features.
///
/// Each round turns disjoint pairs, (0, 1), (2, 3), ... in even ones and (1, 2), (3, 4), ... in odd ones, each by an
/// angle of its own; D rounds reach every rotation. Without `trainable`, a random start makes a fixed rotation that
/// mixes the features.
///
/// Clements et al., "Optimal design for universal multiport interferometers", 2016, https://arxiv.org/abs/1603.08788,
/// has the arrangement in rounds.
class Rotation : public Layer {
 public:
  struct Options {
    int64_t features = 0;
    int64_t rounds = 0;
    std::string start = "identity";
    int64_t seed = 0;
    bool trainable = true;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{required("features", &O::features, "D, at least 2"),
                        optional("rounds", &O::rounds, "rounds of disjoint pairs; 0: D, enough for every rotation"),
                        optional("start", &O::start, "identity, or random angles by seed"),
                        optional("seed", &O::seed, "seed of random angles"),
                        optional("trainable", &O::trainable, "learn the angles; otherwise they stay as they start")};
    }
  };

  explicit Rotation(const Options& options);

  Traits traits() const override { return {.constant_log_det = true}; }
  Json spec() const override { return write("rotation", options_); }

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;
  Tensor matrix() const;  ///< R

  Options options_;
  Tensor angles_;  ///< one for each pair, round after round
};

}  // namespace diffeo
