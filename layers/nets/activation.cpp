#include "diffeo/layers/nets/activation.h"

#include <ATen/ops/elu.h>
#include <ATen/ops/elu_backward.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/leaky_relu_backward.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/softplus_backward.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/threshold_backward.h>

#include <map>

#include "diffeo/layers/base/options.h"

namespace diffeo {
namespace {

const std::map<std::string, Activation>& activations() {
  static const std::map<std::string, Activation> known{
      {"relu",
       {[](const Tensor& x) { return at::relu(x); },
        [](const Tensor& g, const Tensor&, const Tensor& y) { return at::threshold_backward(g, y, 0); }}},
      {"tanh",
       {[](const Tensor& x) { return at::tanh(x); },
        [](const Tensor& g, const Tensor&, const Tensor& y) { return at::tanh_backward(g, y); }}},
      {"silu",
       {[](const Tensor& x) { return at::silu(x); },
        [](const Tensor& g, const Tensor& x, const Tensor&) { return at::silu_backward(g, x); }}},
      {"gelu",
       {[](const Tensor& x) { return at::gelu(x); },
        [](const Tensor& g, const Tensor& x, const Tensor&) { return at::gelu_backward(g, x); }}},
      {"elu",
       {[](const Tensor& x) { return at::elu(x); },
        [](const Tensor& g, const Tensor& x, const Tensor&) { return at::elu_backward(g, 1, 1, 1, false, x); }}},
      {"leaky_relu",
       {[](const Tensor& x) { return at::leaky_relu(x); },
        [](const Tensor& g, const Tensor& x, const Tensor&) { return at::leaky_relu_backward(g, x, 0.01, false); }}},
      {"softplus",
       {[](const Tensor& x) { return at::softplus(x); },
        [](const Tensor& g, const Tensor& x, const Tensor&) { return at::softplus_backward(g, x, 1, 20); }}},
      {"sigmoid",
       {[](const Tensor& x) { return at::sigmoid(x); },
        [](const Tensor& g, const Tensor&, const Tensor& y) { return at::sigmoid_backward(g, y); }}},
  };
  return known;
}

}  // namespace

const Activation& activation(const std::string& name) {
  if (const auto found = activations().find(name); found != activations().end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [key, value] : activations()) known.push_back(key);
  check_choice("activation", name, known);
  return activations().begin()->second;  // check_choice has thrown
}

}  // namespace diffeo
