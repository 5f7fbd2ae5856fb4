#include "diffeo/layers/nets/net.h"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <map>

#include "diffeo/layers/nets/residual_block.h"

namespace diffeo {
namespace {

using Activation = Tensor (*)(const Tensor&);

const std::map<std::string, Activation>& activations() {
  static const std::map<std::string, Activation> known{
      {"relu", [](const Tensor& x) { return at::relu(x); }},
      {"tanh", [](const Tensor& x) { return at::tanh(x); }},
      {"silu", [](const Tensor& x) { return at::silu(x); }},
      {"gelu", [](const Tensor& x) { return at::gelu(x); }},
      {"elu", [](const Tensor& x) { return at::elu(x); }},
      {"leaky_relu", [](const Tensor& x) { return at::leaky_relu(x); }},
      {"softplus", [](const Tensor& x) { return at::softplus(x); }},
      {"sigmoid", [](const Tensor& x) { return at::sigmoid(x); }},
  };
  return known;
}

Tensor joined(const Tensor& x, const Tensor& context) { return context.defined() ? at::cat({x, context}, -1) : x; }

class Mlp : public Net {
 public:
  Mlp(const NetOptions& options, int64_t inputs, int64_t context, int64_t outputs, const std::vector<double>& last_bias)
      : options_(options) {
    int64_t width = inputs + context;
    for (int64_t i = 0; i <= options.depth; ++i) {
      const auto next = i == options.depth ? outputs : options.width;
      maps_.push_back(register_module(std::to_string(i), torch::nn::Linear(width, next)));
      width = next;
    }
    init_last(maps_.back()->weight, maps_.back()->bias, options.init_scale, last_bias);
  }

  Tensor forward(const Tensor& x, const Tensor& context) override {
    auto hidden = joined(x, context);
    for (size_t i = 0; i + 1 < maps_.size(); ++i) {
      hidden = activate(options_.activation, maps_[i]->forward(hidden));
      if (options_.dropout > 0) hidden = at::dropout(hidden, options_.dropout, is_training());
    }
    return maps_.back()->forward(hidden);
  }

 private:
  NetOptions options_;
  std::vector<torch::nn::Linear> maps_;
};

using DenseBlock = ResidualBlock<torch::nn::LinearImpl>;

class Residual : public Net {
 public:
  Residual(const NetOptions& options, int64_t inputs, int64_t context, int64_t outputs,
           const std::vector<double>& last_bias) {
    initial_ = register_module("initial", torch::nn::Linear(inputs + context, options.width));
    const auto dense = [&] { return std::make_shared<torch::nn::LinearImpl>(options.width, options.width); };
    for (int64_t i = 0; i < options.depth; ++i) {
      // In this order, whatever the compiler's: initial values are drawn as the maps are made.
      const auto first = dense(), second = dense();
      blocks_.push_back(
          register_module(std::to_string(i), std::make_shared<DenseBlock>(options, first, second, context)));
    }
    last_ = register_module("last", torch::nn::Linear(options.width, outputs));
    init_last(last_->weight, last_->bias, options.init_scale, last_bias);
  }

  Tensor forward(const Tensor& x, const Tensor& context) override {
    auto hidden = initial_->forward(joined(x, context));
    for (const auto& block : blocks_) hidden = block->forward(hidden, context);
    return last_->forward(hidden);
  }

 private:
  torch::nn::Linear initial_{nullptr}, last_{nullptr};
  std::vector<std::shared_ptr<DenseBlock>> blocks_;
};

}  // namespace

Tensor activate(const std::string& name, const Tensor& x) { return activations().at(name)(x); }

void check_activation(const std::string& name) {
  std::vector<std::string> known;
  for (const auto& [key, value] : activations()) known.push_back(key);
  check_choice("activation", name, known);
}

void check_net_options(const NetOptions& options) {
  check_choice("type", options.type, {"mlp", "residual"});
  check_activation(options.activation);
  if (options.width < 1) throw SpecError("width", c10::str("must be at least 1, got ", options.width));
  if (options.depth < 0) throw SpecError("depth", c10::str("must be at least 0, got ", options.depth));
  if (options.dropout < 0 || options.dropout >= 1)
    throw SpecError("dropout", c10::str("must be in [0, 1), got ", options.dropout));
  if (options.batch_norm && options.type != "residual")
    throw SpecError("batch_norm", "only residual networks have batch normalisation; set \"type\": \"residual\"");
}

Tensor normalised(torch::nn::BatchNorm1dImpl& norm, const Tensor& x) {
  const auto rows = x.reshape({-1, x.size(-1)});  // batch norm knows (rows, features) only
  if (rows.size(0) > 1) return norm.forward(rows).view_as(x);
  return at::batch_norm(rows, norm.weight, norm.bias, norm.running_mean, norm.running_var, false, 0, norm.options.eps(),
                        false)
      .view_as(x);
}

void init_near_zero(Tensor weight, Tensor bias) {
  torch::NoGradGuard no_grad;
  weight.uniform_(-1e-3, 1e-3);
  bias.uniform_(-1e-3, 1e-3);
}

void init_last(Tensor weight, Tensor bias, double scale, const std::vector<double>& last_bias) {
  torch::NoGradGuard no_grad;
  weight.mul_(scale);
  if (last_bias.empty())
    bias.zero_();
  else
    bias.copy_(at::tensor(last_bias, bias.options()));
}

NetPtr build_net(const NetOptions& options, int64_t inputs, int64_t context, int64_t outputs,
                 const std::vector<double>& last_bias) {
  check_net_options(options);
  if (options.type == "mlp") return std::make_shared<Mlp>(options, inputs, context, outputs, last_bias);
  return std::make_shared<Residual>(options, inputs, context, outputs, last_bias);
}

}  // namespace diffeo
