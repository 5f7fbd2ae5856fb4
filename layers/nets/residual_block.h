#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/sigmoid.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include "diffeo/layers/nets/net.h"

namespace diffeo {

/// h + W2 act(W1 act(h)), gated by the context (a gated linear unit) where there is one. `Linear` is dense or masked;
/// both maps go from and to the width of `options`.
///
/// He et al., "Identity Mappings in Deep Residual Networks", 2016, https://arxiv.org/abs/1603.05027, figure 1b.
template <class Linear>
class ResidualBlock : public Module {
 public:
  ResidualBlock(const NetOptions& options, std::shared_ptr<Linear> first, std::shared_ptr<Linear> second,
                int64_t context)
      : options_(options),
        first_(register_module("first", std::move(first))),
        second_(register_module("second", std::move(second))) {
    init_near_zero(second_->weight, second_->bias);
    if (context > 0) gate_ = register_module("gate", torch::nn::Linear(context, options.width));
    if (!options.batch_norm) return;
    norm1_ = register_module("norm1", torch::nn::BatchNorm1d(options.width));
    norm2_ = register_module("norm2", torch::nn::BatchNorm1d(options.width));
  }

  /// The first and the second map, and the gate if there is one.
  std::vector<const torch::nn::LinearImpl*> maps() const {
    if (gate_) return {first_.get(), second_.get(), gate_.get()};
    return {first_.get(), second_.get()};
  }

  /// x (*batch, width), context (*batch, C) or undefined.
  Tensor forward(const Tensor& x, const Tensor& context) {
    auto hidden = options_.batch_norm ? normalised(*norm1_, x) : x;
    hidden = first_->forward(activate(options_.activation, hidden));
    if (options_.batch_norm) hidden = normalised(*norm2_, hidden);
    hidden = activate(options_.activation, hidden);
    if (options_.dropout > 0) hidden = at::dropout(hidden, options_.dropout, is_training());
    hidden = second_->forward(hidden);
    if (gate_) hidden = hidden * at::sigmoid(gate_->forward(context));
    return x + hidden;
  }

 private:
  NetOptions options_;
  std::shared_ptr<Linear> first_, second_;
  torch::nn::Linear gate_{nullptr};
  torch::nn::BatchNorm1d norm1_{nullptr}, norm2_{nullptr};
};

}  // namespace diffeo
