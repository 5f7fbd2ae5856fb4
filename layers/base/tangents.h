#pragma once

#include <functional>

#include "diffeo/layers/base/layer.h"

namespace diffeo {

/// Points after a map, and tangent vectors at the points before it, carried along: J v for each vector v.
struct Pushed {
  Tensor value;     ///< (*batch, *event)
  Tensor tangents;  ///< (K, *batch, *event)
};

/// What a layer can add to `forward` and `inverse`: either without the price of a volume, and tangent vectors carried
/// along by a formula of its own. Containers, and layers to spaces of lower dimension, have it.
class CarriesTangents {
 public:
  virtual ~CarriesTangents() = default;
  virtual Tensor forward_value(const Tensor& x, const Tensor& context) = 0;
  virtual Tensor inverse_value(const Tensor& y, const Tensor& context) = 0;
  /// Tangents (K, *batch, *event), or ones that broadcast to it.
  virtual Pushed push_forward(const Tensor& x, const Tensor& tangents, const Tensor& context) = 0;
  virtual Pushed push_inverse(const Tensor& y, const Tensor& tangents, const Tensor& context) = 0;
};

/// The value of `forward` or `inverse` alone.
Tensor forward_value(Layer& layer, const Tensor& x, const Tensor& context = {});
Tensor inverse_value(Layer& layer, const Tensor& y, const Tensor& context = {});

/// Tangents (K, *batch, *event) pushed through a layer's map or its inverse. A layer without a formula for it is
/// differentiated twice in reverse: the product J v is the derivative by u of v^T (J^T u). Gradients flow through value
/// and tangents where they are enabled.
Pushed push_forward(Layer& layer, const Tensor& x, const Tensor& tangents, const Tensor& context = {});
Pushed push_inverse(Layer& layer, const Tensor& y, const Tensor& tangents, const Tensor& context = {});

/// The d unit vectors at points (*batch, d), as tangents (d, *batch, d).
Tensor unit_tangents(const Tensor& points);

/// 1/2 log det J^T J in nats, (*batch), of the Jacobians whose columns are `tangents` (d, *batch, *event). The products
/// are summed in float64, whatever the dtype.
Tensor half_log_gram(const Tensor& tangents, int64_t event_dimensions = 1);

/// The points that z (*batch, d) stands for on a manifold, and the volume 1/2 log det J^T J of the map there, (*batch).
/// `push` carries the d unit tangents from points (B, d) with contexts. Costs d tangents a point; where gradients are
/// disabled it goes by so many rows at a time that memory stays bounded.
Mapped with_volume(const std::function<Pushed(const Tensor& z, const Tensor& tangents, const Tensor& context)>& push,
                   const Tensor& z, const Tensor& context);

/// A layer from R^D to R^d, d < D. `forward` projects; its log_det is minus the volume 1/2 log det J^T J of the inverse
/// map, an immersion of R^d, at the projection.
class InjectiveLayer : public Layer, public CarriesTangents {
 public:
  Traits traits() const override { return {.injective = true}; }

 protected:
  InjectiveLayer(int64_t features, int64_t latent, int64_t context_size = 0)
      : Layer(Space::reals(features), Space::reals(latent), context_size) {}

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;
};

/// `latent`, which must be at least 1 and below `features`. Throws SpecError at "latent" otherwise.
int64_t checked_latent(int64_t latent, int64_t features);

}  // namespace diffeo
