#include "diffeo/samplers/chains.h"
#include "diffeo/layers/base/training_guard.h"

#include <torch/types.h>

namespace diffeo {

Tensor run_chains(Kernel& kernel, const Tensor& starts, const ChainOptions& options) {
  at_least(1, "draws", options.draws);
  at_least(0, "discard", options.discard);
  at_least(1, "thin", options.thin);
  check(starts.defined() && starts.dim() == 1 + static_cast<int64_t>(kernel.domain().event.size()),
        "chains: expected starts of shape (chains, *event), got ",
        starts.defined() ? c10::str(starts.sizes()) : std::string("none"));
  torch::NoGradGuard no_grad;
  const TrainingGuard as_before(kernel, true);
  auto points = starts;
  for (int64_t i = 0; i < options.discard; ++i) points = kernel.forward(points).value;
  kernel.eval();
  std::vector<Tensor> draws;
  for (int64_t i = 0; i < options.draws; ++i) {
    for (int64_t j = 0; j < options.thin; ++j) points = kernel.forward(points).value;
    draws.push_back(points);
  }
  return torch::stack(draws);
}

}  // namespace diffeo
