#pragma once

#include "diffeo/layers/base/log_density.h"

namespace diffeo {

/// The density between two others, on the way from `start` to `end`:
///
///   log p(x) = (1 - lambda) log p_start(x) + lambda log p_end(x) + constant
///
/// At lambda 0 and 1 only one of the two is evaluated.
class Interpolation : public LogDensity {
 public:
  /// Without a `start`, the standard normal. Throws Error if the spaces differ or lambda is not in [0, 1].
  Interpolation(LogDensityPtr start, LogDensityPtr end, double lambda);

  double lambda() const { return lambda_; }
  const LogDensityPtr& start() const { return start_; }
  const LogDensityPtr& end() const { return end_; }

 private:
  Tensor evaluate(const Tensor& x) override;
  Sloped evaluate_with_gradient(const Tensor& x) override;

  LogDensityPtr start_, end_;
  double lambda_;
};

/// -1/2 |x|^2 on R^D: the standard normal without its constant.
class StandardNormalDensity : public LogDensity {
 public:
  explicit StandardNormalDensity(const Space& space) : LogDensity(space) {}

 private:
  Tensor evaluate(const Tensor& x) override;
  Sloped evaluate_with_gradient(const Tensor& x) override;
};

/// The sum over all dimensions of the events of a space: (*batch, *event) to (*batch).
Tensor sum_of_event(const Tensor& values, const Space& space);

}  // namespace diffeo
