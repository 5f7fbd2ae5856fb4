#pragma once

#include "diffeo/layers/preprocessing/exact.h"

namespace diffeo {

/// y = (x - shift) / scale with fixed numbers for each feature; log_det = -sum of log scale, the same everywhere.
///
/// Shift and scale are a mean and a standard deviation, a median and a range between quantiles, a least value and a
/// width: whatever brings the data to the scale of 1. Being a layer, it leaves likelihoods in the data's own units.
class Standardize : public ExactLayer {
 public:
  struct Options {
    int64_t features = 0;
    std::vector<double> shift;
    std::vector<double> scale;
    std::vector<Json> domain;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{
          required("features", &O::features, "D"), required("shift", &O::shift, "D numbers, in the units of the data"),
          required("scale", &O::scale, "D numbers above 0, in the units of the data"),
          optional(
              "domain", &O::domain,
              "where each feature lives: D items [lower, upper], with null for an infinite end; none for the line")};
    }
  };

  explicit Standardize(const Options& options);

  Traits traits() const override { return {.constant_log_det = true}; }
  Json spec() const override { return write("standardize", options_); }

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;

  Options options_;
  Tensor shift_, scale_;  ///< (D)
  double log_scale_ = 0;  ///< sum over the features
};

}  // namespace diffeo
