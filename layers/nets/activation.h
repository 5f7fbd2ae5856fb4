#pragma once

#include <string>

#include "diffeo/layers/base/module.h"

namespace diffeo {

using torch::Tensor;

/// An activation function and its derivative, of hidden units of any shape.
struct Activation {
  Tensor (*forward)(const Tensor& input);
  /// Derivatives of the loss by the input, from those by the output.
  Tensor (*backward)(const Tensor& by_output, const Tensor& input, const Tensor& output);
};

/// Throws SpecError at "activation", listing the known names, unless the name is known.
const Activation& activation(const std::string& name);

}  // namespace diffeo
