#pragma once

#include <mutex>

#include "diffeo/layers/base/layer.h"

namespace diffeo {

/// What a Sequential keeps of its forward pass for the backward pass.
enum class Memory {
  normal,      ///< what every operation asks for: activations of all networks, parameters of all maps
  checkpoint,  ///< the input of each layer, from which the backward pass goes forward again: the same gradients
  constant     ///< the last output, from which the backward pass finds the inputs by the inverses: the same but for
               ///< rounding
};

/// normal, checkpoint or constant. Throws SpecError at "memory" for another name.
Memory memory_named(const std::string& name);

/// Layers whose inputs are kept after all, because their inverses did not give them back exactly enough.
class Inexact {
 public:
  bool contains(size_t layer) const;
  void add(size_t layer);
  std::vector<size_t> layers() const;  ///< in the order in which they were found

 private:
  mutable std::mutex mutex_;  // backward passes on a GPU run in a thread of their own
  std::vector<size_t> layers_;
};

/// The largest error of an input that an inverse may make, as a part of the largest value: half of the digits.
double inverse_error_bound(torch::Dtype dtype);

/// `layers` one after the other, as one node of autograd that keeps what `memory` says, x (*batch, *event).
///
/// With Memory::constant the inputs of some layers are kept all the same: of those whose inverse is an iteration or
/// evaluates a network for each feature, that are random or injective, that took random numbers or changed their
/// buffers in this pass (dropout, batch normalisation), and of those in `inexact`. The backward pass compares what
/// forward makes of a recovered input with the output that it was recovered from, and from each input that is kept what
/// all inverses after it have piled up. Beyond inverse_error_bound it goes forward from the last kept input instead, so
/// that its gradients are right, and notes in `inexact` the layer that was off most, or the one in the middle if none
/// was alone.
///
/// Second derivatives take the memory that they always take. Throws Error at them if a layer has changed its buffers.
Mapped recomputing(const std::vector<LayerPtr>& layers, const Tensor& x, const Tensor& context, Memory memory,
                   const std::shared_ptr<Inexact>& inexact);

}  // namespace diffeo
