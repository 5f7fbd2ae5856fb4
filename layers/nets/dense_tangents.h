#pragma once

#include <ATen/core/ivalue.h>

#include "diffeo/layers/nets/dense.h"

// Tangent vectors carried through a dense network beside its points, with hand-written derivatives: for networks
// without gates whose activation is silu, tanh or softplus, which have second derivatives.
namespace diffeo::dense {

/// A network at some points, and its Jacobian J there times K vectors for each point.
struct Carried {
  Tensor value;     ///< (*batch, O)
  Tensor tangents;  ///< (K, *batch, O); undefined where none were given
};

/// Throws SpecError at "activation" unless tangents can be carried through it and differentiated.
void check_smooth(const std::string& activation);

/// A pass of a network over points that can be gone on with: tangents may be pushed through it later, when the value is
/// known, and it becomes a part of autograd's graph at the end. What the way there computed is computed once.
///
///   Pass pass(shape, x, parameters);                 // value, without a graph
///   const auto tangents = pass.push(vectors);        // J v, without a graph
///   const auto carried = pass.connect(x, vectors);   // the same value and tangents, with one
class Pass {
 public:
  /// x (B, I).
  Pass(const Shape& shape, const Tensor& x, at::TensorList parameters);
  ~Pass();
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  const Tensor& value() const;  ///< (B, O), without a history
  /// The tangents (K, B, O) of vectors (K, B, I), without a history. What a backward pass needs of them is kept if
  /// `keep`; the vectors given to `connect` must be those pushed last with `keep`.
  Tensor push(const Tensor& vectors, bool keep);
  /// Value and tangents as one node of autograd, of x, vectors (undefined for none) and the parameters. Once only.
  Carried connect(const Tensor& x, const Tensor& vectors);

  struct Record;

 private:
  c10::intrusive_ptr<Record> record_;
  Tensor value_;
  std::vector<Tensor> parameters_;
};

/// Value and tangents at x (*batch, I) of vectors (K, *batch, I), with a graph where gradients are enabled.
/// Differentiable any number of times: beyond the first by `carry_reference`.
Carried carry(const Shape& shape, const Tensor& x, const Tensor& vectors, at::TensorList parameters);

/// The same in plain tensor operations: the oracle of the tests, and second derivatives.
Carried carry_reference(const Shape& shape, const Tensor& x, const Tensor& vectors, at::TensorList parameters);

}  // namespace diffeo::dense
