#pragma once

#include "diffeo/flows/distribution.h"

namespace diffeo {

/// Normal distribution with independent features; standard unless `trainable`.
class Normal : public Distribution {
 public:
  struct Options {
    int64_t features = 0;
    bool trainable = false;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{required("features", &O::features, "D"),
                        optional("trainable", &O::trainable, "learn mean and log standard deviation")};
    }
  };

  explicit Normal(const Options& options);
  Json spec() const override { return write("normal", options_); }

 private:
  Tensor evaluate(const Tensor& x, const Tensor& context) override;
  Drawn simulate(at::IntArrayRef batch, const Tensor& context) override;

  Options options_;
  Tensor mean_, log_scale_;  ///< (D)
};

/// Sum over the last dimension of the standard normal log density, nats.
Tensor standard_normal_log_prob(const Tensor& z);

}  // namespace diffeo
