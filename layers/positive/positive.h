#pragma once

#include "diffeo/layers/base/univariate.h"

namespace diffeo {

/// From the line to (0, inf), without parameters: y = e^x, log_det = sum of x.
class Exp : public Univariate {
 public:
  using Options = NoOptions;
  explicit Exp(const Options&) {}

  int64_t parameters() const override { return 0; }
  Mapped forward(const Tensor& x, const Tensor& parameters) const override;
  Mapped inverse(const Tensor& y, const Tensor& parameters) const override;
  Axis codomain() const override;
  Json spec() const override { return write("exp", Options{}); }
};

/// From (0, inf) to the line, the inverse of Exp: y = log x, log_det = -sum of y.
class Log : public Univariate {
 public:
  using Options = NoOptions;
  explicit Log(const Options&) {}

  int64_t parameters() const override { return 0; }
  Mapped forward(const Tensor& x, const Tensor& parameters) const override;
  Mapped inverse(const Tensor& y, const Tensor& parameters) const override;
  Axis domain() const override;
  Json spec() const override { return write("log", Options{}); }
};

/// From the line to (0, inf), without parameters: y = log(1 + e^x), log_det = sum of log sigmoid(x).
class Softplus : public Univariate {
 public:
  using Options = NoOptions;
  explicit Softplus(const Options&) {}

  int64_t parameters() const override { return 0; }
  Mapped forward(const Tensor& x, const Tensor& parameters) const override;
  Mapped inverse(const Tensor& y, const Tensor& parameters) const override;
  Axis codomain() const override;
  Json spec() const override { return write("softplus", Options{}); }
};

}  // namespace diffeo
