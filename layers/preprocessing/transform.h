#pragma once

#include "diffeo/layers/preprocessing/exact.h"

namespace diffeo {

/// Brings bounded columns of the data to all of the line, each by a fixed formula of its own:
///
///   none    y = x
///   log     y = log(x - lower)                        for x in (lower, inf)
///   logit   y = log(x - lower) - log(upper - x)       for x in (lower, upper)
///
/// Forward throws Error naming row and column of a value that does not lie inside; inverse always ends inside.
class Transform : public ExactLayer {
 public:
  struct Options {
    int64_t features = 0;
    std::vector<std::string> kinds;
    std::vector<double> lower;
    std::vector<double> upper;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{
          required("features", &O::features, "D"), required("kinds", &O::kinds, "D items: none, log or logit"),
          optional("lower", &O::lower, "D lower ends, read where the kind is log or logit; 0 for all if empty"),
          optional("upper", &O::upper, "D upper ends, read where the kind is logit; 1 for all if empty")};
    }
  };

  explicit Transform(const Options& options);

  Json spec() const override { return write("transform", options_); }

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;

  void check_inside(const Tensor& x) const;
  /// The three groups of columns side by side, put in their places.
  Tensor joined(const Tensor& plain, const Tensor& log, const Tensor& logit) const;

  Options options_;
  Tensor lower_, upper_;        ///< (D) ends of the domain, infinite where there is none
  Tensor plain_, log_, logit_;  ///< indices of the columns of each kind
  Tensor order_;                ///< where each column stands in (plain, log, logit)
};

}  // namespace diffeo
