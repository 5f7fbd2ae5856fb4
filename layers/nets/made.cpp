#include "diffeo/layers/nets/made.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <map>

#include "diffeo/layers/base/random_order.h"
#include "diffeo/layers/nets/masked_linear.h"
#include "diffeo/layers/nets/residual_block.h"

namespace diffeo {
namespace {

using Degrees = std::vector<int64_t>;

using MaskedBlock = ResidualBlock<MaskedLinear>;

/// Degrees of the hidden units, sorted: as many of each, from 1 (0 with a context) to D - 1.
Degrees hidden_degrees(const MadeShape& shape, int64_t width) {
  const int64_t lowest = shape.context > 0 ? 0 : 1, count = static_cast<int64_t>(shape.degrees.size()) - lowest;
  Degrees degrees;
  // A narrow network has to skip degrees: it skips them evenly, so that it sees early and late features.
  for (int64_t i = 0; i < width; ++i) degrees.push_back(lowest + (width < count ? i * count / width : i % count));
  std::sort(degrees.begin(), degrees.end());
  return degrees;
}

Degrees repeated_each(const Degrees& degrees, int64_t times) {
  Degrees all;
  for (const auto degree : degrees) all.insert(all.end(), times, degree);
  return all;
}

MadePlan::Map map_of(const torch::nn::LinearImpl* linear) {
  return linear == nullptr ? MadePlan::Map{} : MadePlan::Map{linear->weight, linear->bias};
}

/// Adds the batch normalisation that a block has under a name, if it has, as a scale and a shift.
void add_norm(MadePlan::Step& step, const MaskedBlock& block, const std::string& name) {
  const auto children = block.named_children();
  const auto* found = children.find(name);
  if (found == nullptr) return;
  const auto* norm = (*found)->as<torch::nn::BatchNorm1d>();
  step.scale = norm->weight * at::rsqrt(norm->running_var + norm->options.eps());
  step.shift = norm->bias - norm->running_mean * step.scale;
}

made::Activation activation_of(const std::string& name) {
  using made::Activation;
  static const std::map<std::string, Activation> known{
      {"relu", Activation::relu},         {"tanh", Activation::tanh},      {"silu", Activation::silu},
      {"gelu", Activation::gelu},         {"elu", Activation::elu},        {"leaky_relu", Activation::leaky_relu},
      {"softplus", Activation::softplus}, {"sigmoid", Activation::sigmoid}};
  return known.at(name);
}

class Made : public MaskedNet {
 public:
  Made(const NetOptions& options, const MadeShape& shape, const std::vector<double>& last_bias)
      : options_(options), shape_(shape), periodic_(shape.periodic), residual_(options.type == "residual") {
    const auto hidden = hidden_degrees(shape, options.width);
    for (size_t degree = 0; degree < shape.degrees.size(); ++degree)
      units_.push_back(std::upper_bound(hidden.begin(), hidden.end(), degree) - hidden.begin());
    auto inputs = shape.degrees;
    if (shape.periodic) inputs.insert(inputs.end(), shape.degrees.begin(), shape.degrees.end());
    const auto outputs = repeated_each(shape.degrees, shape.outputs);
    const auto before = residual_ ? 1 : options.depth;  // maps before the last
    for (int64_t i = 0; i <= before; ++i) {
      const auto name = !residual_ ? std::to_string(i) : i == 0 ? "initial" : "last";
      maps_.push_back(register_module(
          name, std::make_shared<MaskedLinear>(i == 0 ? inputs : hidden, i == before ? outputs : hidden, i == before)));
    }
    init_last(maps_.back()->weight, maps_.back()->bias, options.init_scale, last_bias);
    if (shape.context > 0) {
      const auto width = maps_.front()->weight.size(0);
      context_ =
          register_module("context", torch::nn::Linear(torch::nn::LinearOptions(shape.context, width).bias(false)));
    }
    for (int64_t i = 0; residual_ && i < options.depth; ++i) {
      const auto first = std::make_shared<MaskedLinear>(hidden, hidden, false);
      const auto second = std::make_shared<MaskedLinear>(hidden, hidden, false);
      blocks_.push_back(
          register_module(std::to_string(i), std::make_shared<MaskedBlock>(options, first, second, shape.context)));
    }
  }

  Tensor forward(const Tensor& x, const Tensor& context) override {
    if (x.is_cpu() && !gradients_wanted(*this, x, context) &&
        options_.activation != "gelu")  // see made_inverse.simd.cpp
      if (const auto known = plan()) return without_gradients(*known, x, context);
    auto hidden = maps_.front()->forward(periodic_ ? at::cat({x.cos(), x.sin()}, -1) : x);
    if (context_) hidden = hidden + context_->forward(context);
    for (const auto& block : blocks_) hidden = block->forward(hidden, context);
    for (size_t i = 1; i < maps_.size(); ++i) {
      if (!residual_) {
        hidden = activate(options_.activation, hidden);
        if (options_.dropout > 0) hidden = at::dropout(hidden, options_.dropout, is_training());
      }
      hidden = maps_[i]->forward(hidden);
    }
    return hidden;
  }

  std::optional<MadePlan> plan() const override {
    const auto& weight = maps_.front()->weight;
    if (is_training() && (options_.batch_norm || options_.dropout > 0)) return {};
    if (!(weight.is_cpu() || weight.is_cuda()) ||
        (weight.scalar_type() != at::kFloat && weight.scalar_type() != at::kDouble))
      return {};
    torch::NoGradGuard no_grad;
    MadePlan plan{.units = units_,
                  .width = options_.width,
                  .context = shape_.context,
                  .outputs = shape_.outputs,
                  .periodic = periodic_,
                  .buffers = static_cast<int>(residual_ ? 1 + 2 * options_.depth : options_.depth)};
    plan.sequence.resize(shape_.degrees.size());
    for (size_t i = 0; i < shape_.degrees.size(); ++i) plan.sequence[shape_.degrees[i] - 1] = static_cast<int64_t>(i);
    residual_ ? add_blocks(plan) : add_layers(plan);
    return plan;
  }

 private:
  static Tensor without_gradients(const MadePlan& plan, const Tensor& x, const Tensor& context) {
    const auto points = x.reshape({-1, x.size(-1)});
    const auto outputs =
        pass(plan, points, context.defined() ? context.reshape({points.size(0), context.size(-1)}) : context);
    auto sizes = x.sizes().vec();
    sizes.back() = outputs.size(-1);
    return outputs.view(sizes);
  }

  /// The first map, seeing the context, then the features in their order.
  MadePlan::Map first(const MadePlan& plan) const {
    std::vector<int64_t> columns;
    for (const auto feature : plan.sequence) {
      columns.push_back(feature);
      if (periodic_) columns.push_back(feature + static_cast<int64_t>(shape_.degrees.size()));
    }
    const auto weight_options = maps_.front()->weight.options().requires_grad(false);
    auto weight = maps_.front()->weight.index_select(1, at::tensor(columns, weight_options.dtype(at::kLong)));
    if (context_) weight = at::cat({context_->weight, weight}, 1);
    return {weight, maps_.front()->bias};
  }

  void add_layers(MadePlan& plan) const {
    const auto activation = activation_of(options_.activation);
    for (int i = 0; i < options_.depth; ++i)
      plan.steps.push_back({.map = i == 0 ? first(plan) : map_of(maps_[i].get()),
                            .activation = activation,
                            .source = i,
                            .target = i + 1});
    plan.last = options_.depth == 0 ? first(plan) : map_of(maps_.back().get());
    plan.last_source = static_cast<int>(options_.depth);
  }

  void add_blocks(MadePlan& plan) const {
    const auto activation = activation_of(options_.activation);
    constexpr int sum = 1;  // the buffer that blocks add to
    plan.steps.push_back({.map = first(plan), .source = 0, .target = sum});
    int next = sum + 1;
    for (const auto& block : blocks_) {
      const int before = next++, between = next++;
      const auto maps = block->maps();  // the first, the second, and the gate if there is one
      MadePlan::Step start{.activation = activation, .source = sum, .target = before};
      add_norm(start, *block, "norm1");
      MadePlan::Step middle{.map = map_of(maps[0]), .activation = activation, .source = before, .target = between};
      add_norm(middle, *block, "norm2");
      plan.steps.push_back(start);
      plan.steps.push_back(middle);
      plan.steps.push_back({.map = map_of(maps[1]),
                            .gate = map_of(maps.size() > 2 ? maps[2] : nullptr),
                            .source = between,
                            .target = sum,
                            .add = true});
    }
    plan.last = map_of(maps_.back().get());
    plan.last_source = sum;
  }

  NetOptions options_;
  MadeShape shape_;
  Degrees units_;  ///< hidden units of degree d and below
  bool periodic_, residual_;
  std::vector<std::shared_ptr<MaskedLinear>> maps_;
  std::vector<std::shared_ptr<MaskedBlock>> blocks_;
  torch::nn::Linear context_{nullptr};
};

/// The network of a single feature: it sees nothing but the context, or is a constant without one.
class Sightless : public MaskedNet {
 public:
  Sightless(const NetOptions& options, const MadeShape& shape, const std::vector<double>& last_bias) {
    if (shape.context > 0) {
      net_ = register_module("net", build_net(options, shape.context, 0, shape.outputs, last_bias));
    } else {
      constant_ = register_parameter("constant", at::zeros({shape.outputs}));
      torch::NoGradGuard no_grad;
      if (!last_bias.empty()) constant_.copy_(at::tensor(last_bias));
    }
  }

  Tensor forward(const Tensor& x, const Tensor& context) override {
    if (net_) return net_->forward(context);
    auto shape = x.sizes().vec();
    shape.back() = constant_.size(0);
    return constant_.expand(shape);
  }

  std::optional<MadePlan> plan() const override { return {}; }

 private:
  NetPtr net_;
  Tensor constant_;
};

}  // namespace

bool gradients_wanted(const Module& net, const Tensor& y, const Tensor& context) {
  if (!torch::GradMode::is_enabled()) return false;
  if (y.requires_grad() || (context.defined() && context.requires_grad())) return true;
  const auto parameters = net.parameters();
  return std::any_of(parameters.begin(), parameters.end(), [](const Tensor& p) { return p.requires_grad(); });
}

MaskedNetPtr build_made(const NetOptions& options, const MadeShape& shape, const std::vector<double>& last_bias) {
  check_net_options(options);
  if (options.precision != "full")
    throw SpecError("precision", "masked networks compute in full precision; bfloat16 is for couplings");
  if (shape.degrees.size() == 1) return std::make_shared<Sightless>(options, shape, last_bias);
  return std::make_shared<Made>(options, shape, last_bias);
}

std::vector<int64_t> feature_degrees(const std::string& order, int64_t features, int64_t seed) {
  check_choice("order", order, {"natural", "reverse", "random"});
  Degrees degrees;
  const auto random = random_order(features, seed);
  for (int64_t i = 0; i < features; ++i)
    degrees.push_back(order == "natural" ? i + 1 : order == "reverse" ? features - i : random[i] + 1);
  return degrees;
}

}  // namespace diffeo
