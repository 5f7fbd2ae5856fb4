#pragma once

#include <torch/nn/modules/linear.h>

#include <vector>

#include "diffeo/layers/base/module.h"

namespace diffeo {

/// A linear map (*batch, inputs) -> (*batch, units) with some of its weights held at zero: x (W * mask)^T + b.
///
/// Where each unit sees the first few inputs only, as with units and inputs sorted by degree, it is one node whose
/// products, forward and backward, leave out the zeros in panels of some 32 columns: little more than half of the dense
/// arithmetic. Other masks, devices and types, and second derivatives, take the definition.
class MaskedLinear : public torch::nn::LinearImpl {
 public:
  /// A unit sees an input if its degree is at least, or `strict`ly above, that of the input.
  MaskedLinear(const std::vector<int64_t>& inputs, const std::vector<int64_t>& units, bool strict);

  Tensor forward(const Tensor& x);

  /// For each unit how many of the first inputs it sees; empty for masks of another form.
  const std::vector<int64_t>& seen() const { return seen_; }

 private:
  Tensor mask_;  ///< (units, inputs), 0 or 1
  std::vector<int64_t> seen_;
};

}  // namespace diffeo
