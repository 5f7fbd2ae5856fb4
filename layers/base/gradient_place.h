#pragma once

#include "diffeo/layers/base/module.h"

namespace diffeo {

/// Where an optimiser wants the gradients of its parameters: views of one flat tensor. A fused operation writes the
/// gradient of a parameter there, and autograd adopts the tensor as it is where the parameter has no gradient yet:
/// nothing is cleared, added up or copied.
class GradientPlaces {
 public:
  GradientPlaces() = default;
  ~GradientPlaces();
  GradientPlaces(const GradientPlaces&) = delete;
  GradientPlaces& operator=(const GradientPlaces&) = delete;

  /// `place` has the parameter's shape, dtype and device, and is contiguous.
  void add(const Tensor& parameter, const Tensor& place);
  /// Offers the places: the next backward pass may write to each once.
  void offer();
  /// Withdraws them: gradients asked for between two steps get memory of their own.
  void withdraw();

 private:
  void set_free(bool free);
  std::vector<const c10::TensorImpl*> parameters_;
};

/// A tensor for the gradient of a parameter, its values undefined: its place if one is on offer and nobody has taken it
/// (a parameter used twice has two gradients), or a new tensor.
Tensor gradient_for(const Tensor& parameter);

}  // namespace diffeo
