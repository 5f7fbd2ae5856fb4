#pragma once

#include "diffeo/layers/base/layer.h"

namespace diffeo {

/// Derivatives of a loss by the points and the parameters that a map was given.
struct MapGradients {
  Tensor by_points, by_parameters;  ///< as the points and the parameters
};

/// A monotone map of one variable with P parameters, applied to every feature with parameters of its own.
///
/// It holds no weights: a scheme (coupling, autoregressive, elementwise) feeds it. Shapes: points (*batch, D),
/// parameters (*batch, D, P), or (D, P) to be shared by the batch. `parameters` may be any real numbers; the map makes
/// them valid. Where P is 0 they may be undefined.
class Univariate {
 public:
  virtual ~Univariate() = default;

  virtual int64_t parameters() const = 0;  ///< P
  /// y and the sum over features of log|dy/dx|, (*batch), nats.
  virtual Mapped forward(const Tensor& x, const Tensor& parameters) const = 0;
  /// x and minus the log_det of forward.
  virtual Mapped inverse(const Tensor& y, const Tensor& parameters) const = 0;

  /// Whether `gradients` can be asked for such points. A layer can then be one node of autograd with the map inside.
  virtual bool has_gradients(const Tensor& /*points*/) const { return false; }
  /// Without a graph, the derivatives by the arguments of forward (of inverse, where `inverse`), given its value and
  /// the derivatives of the loss by value and log_det.
  virtual MapGradients gradients(const Tensor& points, const Tensor& parameters, const Tensor& value,
                                 const Tensor& by_value, const Tensor& by_log_det, bool inverse) const;

  /// Parameters, P of them, at which the map is the identity or as near to it as it can be.
  virtual std::vector<double> identity() const { return std::vector<double>(parameters(), 0.0); }

  virtual Axis domain() const { return {}; }
  virtual Axis codomain() const { return {}; }
  virtual Traits traits() const { return {}; }
  /// False where a feature's result depends on the parameters of the others (volume preservation).
  virtual bool separable() const { return true; }
  virtual Json spec() const = 0;
};

using UnivariatePtr = std::shared_ptr<const Univariate>;

/// Options of a map that has none.
struct NoOptions {
  static constexpr auto fields() { return std::tuple<>{}; }
};

/// `identity()` once for each of `features` features: (features, P) in row-major order.
std::vector<double> identities(const Univariate& map, int64_t features);

}  // namespace diffeo
