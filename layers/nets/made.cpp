#include "diffeo/layers/nets/made.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>

#include "diffeo/layers/base/random_order.h"
#include "diffeo/layers/nets/residual_block.h"

namespace diffeo {
namespace {

using Degrees = std::vector<int64_t>;

/// 1 for each (output, input) that may be connected: the output's degree is at least, or `strict`ly above, the input's.
Tensor mask_of(const Degrees& inputs, const Degrees& outputs, bool strict) {
  const auto in = at::tensor(inputs), out = at::tensor(outputs).unsqueeze(-1);
  return (strict ? out > in : out >= in).to(at::kFloat);
}

/// A linear map with some of its weights held at zero.
class MaskedLinear : public torch::nn::LinearImpl {
 public:
  MaskedLinear(const Degrees& inputs, const Degrees& outputs, bool strict)
      : LinearImpl(static_cast<int64_t>(inputs.size()), static_cast<int64_t>(outputs.size())),
        mask_(register_buffer("mask", mask_of(inputs, outputs, strict))) {}

  Tensor forward(const Tensor& x) { return at::linear(x, weight * mask_, bias); }

 private:
  Tensor mask_;
};

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

class Made : public Net {
 public:
  Made(const NetOptions& options, const MadeShape& shape, const std::vector<double>& last_bias)
      : options_(options), periodic_(shape.periodic), residual_(options.type == "residual") {
    const auto hidden = hidden_degrees(shape, options.width);
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

 private:
  NetOptions options_;
  bool periodic_, residual_;
  std::vector<std::shared_ptr<MaskedLinear>> maps_;
  std::vector<std::shared_ptr<MaskedBlock>> blocks_;
  torch::nn::Linear context_{nullptr};
};

/// The network of a single feature: it sees nothing but the context, or is a constant without one.
class Sightless : public Net {
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

 private:
  NetPtr net_;
  Tensor constant_;
};

}  // namespace

NetPtr build_made(const NetOptions& options, const MadeShape& shape, const std::vector<double>& last_bias) {
  check_net_options(options);
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
