#pragma once

#include "diffeo/layers/base/univariate.h"

namespace diffeo {

/// y = x where x >= 0 and slope x elsewhere, without parameters; log_det = log(slope) for each negative feature.
class LeakyRelu : public Univariate {
 public:
  struct Options {
    double slope = 0.1;
    static constexpr auto fields() {
      return std::tuple{optional("slope", &Options::slope, "slope on the negative side, above 0")};
    }
  };

  explicit LeakyRelu(const Options& options);

  int64_t parameters() const override { return 0; }
  Mapped forward(const Tensor& x, const Tensor& parameters) const override;
  Mapped inverse(const Tensor& y, const Tensor& parameters) const override;
  Json spec() const override { return write("leaky_relu", options_); }

 private:
  Options options_;
};

}  // namespace diffeo
