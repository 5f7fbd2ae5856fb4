#pragma once

#include "diffeo/flows/flow.h"
#include "diffeo/layers/base/affine_map.h"
#include "diffeo/layers/base/log_density.h"

namespace diffeo {

/// The score s of an energy at some points, and how it changes in some directions.
struct Slices {
  Tensor score;       ///< (*batch, *event)
  Tensor curvatures;  ///< v^T (ds/dx) v of each direction v, (K, *batch)
};

/// A flow seen as an energy-based model: the log-determinants that depend on no input are the normalising constant, and
/// everything else is the energy.
///
///   p(x | c) = exp(-E(x | c)) / Z
///   E = -log p_base(g(x)) - sum over layers of other log_dets,   log Z = -(sum over layers with constant ones)
///
/// Which are constant is said by the layers' Traits, however deep they stand in others. The energy costs no determinant
/// of a linear layer, and neither does its gradient. As a LogDensity it is -E, without the normalising constant; to
/// sample it there are Flow::draw and annealed_langevin.
///
/// Chao et al., "Training energy-based normalizing flow with score-matching objectives", 2023,
/// https://arxiv.org/abs/2305.15267, eq. 8-9.
class Energy : public LogDensity {
 public:
  /// The energy of the points that `flow` sees after its first `first` layers; 0: of the data.
  /// Throws Error for a flow with random or injective layers, and if there are fewer layers than `first`.
  explicit Energy(FlowPtr flow, int64_t first = 0);

  /// E in nats, (*batch), of points (*batch, *event). Gradients flow to the points, the context and the parameters.
  Tensor energy(const Tensor& x, const Tensor& context = {});
  /// The score, d log p / dx = -dE/dx, (*batch, *event). With `differentiable` it has a graph of its own.
  Tensor score(const Tensor& x, const Tensor& context = {}, bool differentiable = false);
  /// The score along with the curvature of -E in some directions, one pass for all: see Slices. Differentiable where
  /// `differentiable`.
  Slices slices(const Tensor& x, const Tensor& directions, const Tensor& context = {}, bool differentiable = false);
  /// E at x + step, x - step and x, (3, *batch), of points and steps (*batch, *event). Gradients flow to the points,
  /// the steps, the context and the parameters. Costs less than three energies where the flow begins with affine
  /// layers: these map the points once and the steps once.
  Tensor energies_around(const Tensor& x, const Tensor& step, const Tensor& context = {});
  /// log Z in nats, a scalar: log p(x) = -E(x) - log Z. Gradients flow.
  Tensor log_normaliser();
  /// Points after the first layers, (*batch, *event), of data points.
  Tensor enter(const Tensor& data, const Tensor& context = {});
  /// The way back: data points of points after the first layers.
  Tensor leave(const Tensor& x, const Tensor& context = {});
  /// Points of the model, (n, *event), or one for each context (n, C); by the inverse, without a graph.
  Tensor draw(int64_t n, const Tensor& context = {});

  const FlowPtr& flow() const { return flow_; }

 private:
  Tensor evaluate(const Tensor& x) override { return -energy(x); }

  const std::vector<LayerPtr>& layers() const;
  /// The context as the layers have it, for points of this shape.
  Tensor inner_context(const Tensor& x, const Tensor& context);
  /// The affine layers that everything else comes after, in order.
  std::vector<AffineMap*> affine_front() const;
  /// The energy of points after the first `first` layers.
  Tensor energy_after(size_t first, Tensor point, const Tensor& inner);
  /// Points after the affine front, with a graph in which they ask for gradients.
  Tensor pass_front(const Tensor& x);

  FlowPtr flow_;
  size_t first_;
};

/// How many layers at the front of a flow learn nothing: preprocessing.
int64_t fixed_layers(const Flow& flow);

}  // namespace diffeo
