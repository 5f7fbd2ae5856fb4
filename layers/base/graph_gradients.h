#pragma once

#include <torch/csrc/autograd/variable.h>

namespace diffeo {

/// Gradients of `outputs`, weighted by `by_outputs`, that can be differentiated themselves: undefined for inputs that
/// ask for none, and without the outputs that depend on none of the others. For the backward of a fused operation whose
/// second derivatives come from its composed form.
torch::autograd::variable_list graph_gradients(const torch::autograd::variable_list& outputs,
                                               const torch::autograd::variable_list& by_outputs,
                                               const torch::autograd::variable_list& inputs);

}  // namespace diffeo
