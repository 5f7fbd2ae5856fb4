#include "diffeo/layers/base/graph_gradients.h"

#include <torch/csrc/autograd/autograd.h>

namespace diffeo {

using torch::autograd::variable_list;

variable_list graph_gradients(const variable_list& outputs, const variable_list& by_outputs,
                              const variable_list& inputs) {
  variable_list from, by, wanted;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].requires_grad()) continue;
    from.push_back(outputs[i]);
    by.push_back(by_outputs[i]);
  }
  const auto asks = [](const at::Tensor& input) { return input.defined() && input.requires_grad(); };
  for (const auto& input : inputs)
    if (asks(input)) wanted.push_back(input);
  const auto found = torch::autograd::grad(from, wanted, by, true, true, true);
  variable_list gradients;
  size_t next = 0;
  for (const auto& input : inputs) gradients.push_back(asks(input) ? found[next++] : at::Tensor());
  return gradients;
}

}  // namespace diffeo
