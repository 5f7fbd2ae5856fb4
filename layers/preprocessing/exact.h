#pragma once

#include <utility>
#include <vector>

#include "diffeo/layers/base/layer.h"

namespace diffeo {

/// A layer with constants given as doubles in its spec. They are kept in buffers of its dtype, and rounded from the
/// doubles again at each change of dtype: a layer cast to float64 has all their digits.
class ExactLayer : public Layer {
 public:
  using Layer::to;
  void to(torch::Dtype dtype, bool non_blocking = false) override;

 protected:
  using Layer::Layer;
  /// A buffer (size of values) that follows dtype and device of the layer.
  Tensor register_exact(const std::string& name, const std::vector<double>& values);

 private:
  std::vector<std::pair<Tensor, std::vector<double>>> exact_;
};

}  // namespace diffeo
