#pragma once

#include "diffeo/flows/distribution.h"

namespace diffeo {

/// Uniform distribution on a box, or on a torus where `circular`: log p = -sum of log(upper - lower) inside, -inf
/// outside. Ends are inside, within a few roundings.
class Uniform : public Distribution {
 public:
  struct Options {
    int64_t features = 0;
    Json lower = 0.0;
    Json upper = 1.0;
    bool circular = false;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{
          required("features", &O::features, "D"), optional("lower", &O::lower, "lower end: a number, or a list of D"),
          optional("upper", &O::upper, "upper end: a number, or a list of D"),
          optional("circular", &O::circular, "whether the two ends are one point (a circle for each feature)")};
    }
  };

  explicit Uniform(const Options& options);
  Json spec() const override { return write("uniform", options_); }

 private:
  Tensor evaluate(const Tensor& x, const Tensor& context) override;
  Drawn simulate(at::IntArrayRef batch, const Tensor& context) override;

  Options options_;
  double log_volume_;
  std::vector<double> lower_, upper_;  ///< not tensors: a double end must not pass through float32
};

}  // namespace diffeo
