#pragma once

#include "diffeo/layers/base/layer.h"

namespace diffeo {

/// What a layer changes when it goes forward, as it was before: dropout takes random numbers, batch normalisation notes
/// statistics, ActNorm sets itself. Nothing is kept for a layer that changes nothing.
struct Before {
  std::vector<Tensor> buffers;  ///< all of the layer's, in order, or empty
  Tensor random;                ///< state of the generator, or undefined

  bool nothing() const { return buffers.empty() && !random.defined(); }
};

/// Goes forward and notes in `before` what is needed to do the same again.
Mapped record(Layer& layer, const Tensor& x, const Tensor& context, Before& before);

/// Within its scope a layer goes forward as it did when it was recorded, in the same mode and with the same random
/// numbers; afterwards buffers, mode and generator are as they were before the scope.
class Replay {
 public:
  Replay(Layer& layer, const Before& before, bool training, torch::Device device);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

 private:
  Layer& layer_;
  torch::Device device_;
  bool was_training_;
  std::vector<Tensor> buffers_;  ///< as they were before the scope
  Tensor random_;
};

}  // namespace diffeo
