#pragma once

#include "diffeo/layers/base/tangents.h"

namespace diffeo {

/// Keeps the first d of D features; its inverse pads with zeros. Of volume 0: log_det = 0.
///
/// With an ordinary flow before it and one behind it is a rectangular flow: the container adds the volume of what
/// stands before. Behind layers that are conformal it is a conformal embedding flow.
///
/// Brehmer and Cranmer, "Flows for simultaneous manifold learning and density estimation", 2020,
/// https://arxiv.org/abs/2003.13913; Caterini et al., "Rectangular Flows for Manifold Learning", 2021,
/// https://arxiv.org/abs/2106.01413.
class Project : public InjectiveLayer {
 public:
  struct Options {
    int64_t features = 0;
    int64_t latent = 0;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{required("features", &O::features, "D, at least 2"),
                        required("latent", &O::latent, "d, features to keep, at least 1 and below D")};
    }
  };

  explicit Project(const Options& options);

  Traits traits() const override { return {.constant_log_det = true, .injective = true}; }
  Json spec() const override { return write("project", options_); }

  Tensor forward_value(const Tensor& x, const Tensor& context) override;
  Tensor inverse_value(const Tensor& y, const Tensor& context) override;
  Pushed push_forward(const Tensor& x, const Tensor& tangents, const Tensor& context) override;
  Pushed push_inverse(const Tensor& y, const Tensor& tangents, const Tensor& context) override;

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;

  Options options_;
};

}  // namespace diffeo
