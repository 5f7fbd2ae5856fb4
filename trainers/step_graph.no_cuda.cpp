// Builds without CUDA.
#include "diffeo/trainers/step_graph.h"
#include "diffeo/layers/base/error.h"

namespace diffeo {

std::unique_ptr<Recording> cuda_recording(torch::Device) {
  throw Error("graph: this build has no CUDA; configure it with -DDIFFEO_CUDA=ON, or set graph to auto or off");
}

}  // namespace diffeo
