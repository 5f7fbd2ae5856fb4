#pragma once

#include "diffeo/layers/base/univariate.h"

namespace diffeo {

/// An open interval (lower, upper).
struct Interval {
  double lower = 0;
  double upper = 1;
  static constexpr auto fields() {
    return std::tuple{optional("lower", &Interval::lower, "lower end of the interval"),
                      optional("upper", &Interval::upper, "upper end of the interval")};
  }
};

/// From the line to an interval, without parameters: y = lower + (upper - lower) sigmoid(x),
/// log_det = sum of log sigmoid(x) + log sigmoid(-x) + log(upper - lower).
class Sigmoid : public Univariate {
 public:
  using Options = Interval;
  explicit Sigmoid(const Options& options);

  int64_t parameters() const override { return 0; }
  Mapped forward(const Tensor& x, const Tensor& parameters) const override;
  Mapped inverse(const Tensor& y, const Tensor& parameters) const override;
  Axis codomain() const override { return {interval_.lower, interval_.upper}; }
  Json spec() const override { return write("sigmoid", interval_); }

 private:
  Interval interval_;
};

/// From an interval to the line, the inverse of Sigmoid: y = log(x - lower) - log(upper - x).
class Logit : public Univariate {
 public:
  using Options = Interval;
  explicit Logit(const Options& options);

  int64_t parameters() const override { return 0; }
  Mapped forward(const Tensor& x, const Tensor& parameters) const override;
  Mapped inverse(const Tensor& y, const Tensor& parameters) const override;
  Axis domain() const override { return {interval_.lower, interval_.upper}; }
  Json spec() const override { return write("logit", interval_); }

 private:
  Interval interval_;
};

/// From the line to (-1, 1), without parameters: y = tanh x, log_det = sum of log(1 - y^2).
class Tanh : public Univariate {
 public:
  using Options = NoOptions;
  explicit Tanh(const Options&) {}

  int64_t parameters() const override { return 0; }
  Mapped forward(const Tensor& x, const Tensor& parameters) const override;
  Mapped inverse(const Tensor& y, const Tensor& parameters) const override;
  Axis codomain() const override { return {-1, 1}; }
  Json spec() const override { return write("tanh", Options{}); }
};

}  // namespace diffeo
