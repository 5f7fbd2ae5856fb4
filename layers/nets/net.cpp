#include "diffeo/layers/nets/net.h"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/tensor.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include "diffeo/layers/nets/activation.h"
#include "diffeo/layers/nets/dense.h"
#include "diffeo/layers/nets/residual_block.h"

namespace diffeo {
namespace {

Tensor joined(const Tensor& x, const Tensor& context) { return context.defined() ? at::cat({x, context}, -1) : x; }

bool drops(const NetOptions& options, bool training) { return options.dropout > 0 && training; }

void append(std::vector<Tensor>& parameters, const torch::nn::LinearImpl& map) {
  parameters.push_back(map.weight);
  parameters.push_back(map.bias);
}

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

  std::optional<DenseForm> dense_form(bool) const override {
    if (drops(options_, is_training())) return std::nullopt;
    DenseForm form{.shape = {.residual = false,
                             .depth = options_.depth,
                             .activation = options_.activation,
                             .bfloat16 = options_.precision == "bfloat16"}};
    for (const auto& map : maps_) append(form.parameters, *map);
    return form;
  }

  Tensor forward(const Tensor& x, const Tensor& context) override {
    auto hidden = joined(x, context);
    if (const auto form = dense_form(context.defined())) return dense::apply(form->shape, hidden, {}, form->parameters);
    for (size_t i = 0; i + 1 < maps_.size(); ++i) {
      hidden = activate(options_.activation, maps_[i]->forward(hidden));
      hidden = at::dropout(hidden, options_.dropout, true);
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
           const std::vector<double>& last_bias)
      : options_(options) {
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

  std::optional<DenseForm> dense_form(bool has_context) const override {
    if (options_.batch_norm || drops(options_, is_training())) return std::nullopt;
    DenseForm form{.shape = {.residual = true,
                             .depth = options_.depth,
                             .activation = options_.activation,
                             .gated = has_context,
                             .bfloat16 = options_.precision == "bfloat16"}};
    append(form.parameters, *initial_);
    for (const auto& block : blocks_)
      for (const auto* map : block->maps()) append(form.parameters, *map);
    append(form.parameters, *last_);
    return form;
  }

  Tensor forward(const Tensor& x, const Tensor& context) override {
    if (const auto form = dense_form(context.defined()))
      return dense::apply(form->shape, joined(x, context), context, form->parameters);
    auto hidden = initial_->forward(joined(x, context));
    for (const auto& block : blocks_) hidden = block->forward(hidden, context);
    return last_->forward(hidden);
  }

 private:
  NetOptions options_;
  torch::nn::Linear initial_{nullptr}, last_{nullptr};
  std::vector<std::shared_ptr<DenseBlock>> blocks_;
};

}  // namespace

Tensor activate(const std::string& name, const Tensor& x) { return activation(name).forward(x); }

void check_activation(const std::string& name) { activation(name); }

void check_net_options(const NetOptions& options) {
  check_choice("type", options.type, {"mlp", "residual"});
  check_activation(options.activation);
  if (options.width < 1) throw SpecError("width", c10::str("must be at least 1, got ", options.width));
  if (options.depth < 0) throw SpecError("depth", c10::str("must be at least 0, got ", options.depth));
  if (options.dropout < 0 || options.dropout >= 1)
    throw SpecError("dropout", c10::str("must be in [0, 1), got ", options.dropout));
  check_choice("precision", options.precision, {"full", "bfloat16"});
  if (options.precision == "bfloat16" && (options.dropout > 0 || options.batch_norm))
    throw SpecError("precision", "bfloat16 is for networks without dropout and batch normalisation");
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
