#include "diffeo/samplers/chains.h"

#include <torch/types.h>

namespace diffeo {

Tensor run_chains(Kernel& kernel, const Tensor& starts, const ChainOptions& options) {
  at_least(1, "draws", options.draws);
  at_least(0, "discard", options.discard);
  at_least(1, "thin", options.thin);
  check(starts.defined() && starts.dim() == 1 + static_cast<int64_t>(kernel.domain().event.size()),
        "chains: expected starts of shape (chains, *event)");
  torch::NoGradGuard no_grad;
  const bool was_training = kernel.is_training();
  auto points = starts;
  kernel.train();
  for (int64_t i = 0; i < options.discard; ++i) points = kernel.forward(points).value;
  kernel.eval();
  std::vector<Tensor> draws;
  for (int64_t i = 0; i < options.draws; ++i) {
    for (int64_t j = 0; j < options.thin; ++j) points = kernel.forward(points).value;
    draws.push_back(points);
  }
  kernel.train(was_training);
  return torch::stack(draws);
}

}  // namespace diffeo
