#pragma once

#include <functional>
#include <mutex>

#include "diffeo/layers/base/module.h"

namespace diffeo {

/// The LU factors of a square matrix, without a graph.
struct Factors {
  Tensor lu, pivots;
  Tensor log_det;  ///< scalar, log|det|, nats; -inf for a singular matrix
};

/// The factors of a matrix that a parameter makes, kept until the parameter has other values: evaluations and samples
/// between two steps of training factorise once. Values are compared, because an optimiser may change them behind
/// autograd's back.
class KeptFactors {
 public:
  /// `make` turns `parameter` into the matrix.
  Factors of(const Tensor& parameter, const std::function<Tensor()>& make);

 private:
  std::mutex mutex_;
  Tensor seen_;  ///< the parameter as it was
  Factors factors_;
};

}  // namespace diffeo
