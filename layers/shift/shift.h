#pragma once

#include "diffeo/layers/base/univariate.h"

namespace diffeo {

/// y = x + t with one parameter t per feature; log_det = 0.
///
/// Dinh et al., "NICE", 2014, https://arxiv.org/abs/1410.8516, section 3.2.
class Additive : public Univariate {
 public:
  using Options = NoOptions;
  explicit Additive(const Options&) {}

  int64_t parameters() const override { return 1; }
  Mapped forward(const Tensor& x, const Tensor& parameters) const override;
  Mapped inverse(const Tensor& y, const Tensor& parameters) const override;
  Traits traits() const override { return {.constant_log_det = true}; }
  Json spec() const override { return write("additive", Options{}); }
};

/// Turns an angle: y = x + t modulo 2 pi, in [-pi, pi), with one parameter t per feature; log_det = 0.
///
/// Rezende et al., "Normalizing Flows on Tori and Spheres", 2020, https://arxiv.org/abs/2002.02428, section 2.2.
class CircularShift : public Univariate {
 public:
  using Options = NoOptions;
  explicit CircularShift(const Options&) {}

  int64_t parameters() const override { return 1; }
  Mapped forward(const Tensor& x, const Tensor& parameters) const override;
  Mapped inverse(const Tensor& y, const Tensor& parameters) const override;
  Axis domain() const override;
  Axis codomain() const override { return domain(); }
  Traits traits() const override { return {.constant_log_det = true}; }
  Json spec() const override { return write("circular_shift", Options{}); }
};

}  // namespace diffeo
