#include "diffeo/layers/nets/conv_net.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>

#include <cmath>

namespace diffeo {
namespace {

/// A convolution (N, H, W, inputs) -> (N, H, W, outputs) of odd kernel, padded to keep the size.
class Convolution : public Module {
 public:
  Convolution(int64_t inputs, int64_t outputs, int64_t kernel) : kernel_(kernel) {
    const double bound = 1 / std::sqrt(static_cast<double>(inputs * kernel * kernel));
    weight = register_parameter("weight", at::empty({outputs, inputs, kernel, kernel}).uniform_(-bound, bound));
    bias = register_parameter("bias", at::empty({outputs}).uniform_(-bound, bound));
  }

  Tensor forward(const Tensor& x) const {
    const auto images = x.contiguous().permute({0, 3, 1, 2});
    return at::conv2d(images, weight, bias, 1, kernel_ / 2).permute({0, 2, 3, 1}).contiguous();
  }

  Tensor weight, bias;

 private:
  int64_t kernel_;
};
using ConvolutionPtr = std::shared_ptr<Convolution>;

/// What both kinds have: points of any batch as one, with the context in every pixel.
class ConvNet : public Net {
 public:
  Tensor forward(const Tensor& x, const Tensor& context) override {
    const auto sizes = x.sizes().slice(0, x.dim() - 1);
    auto pixels = x;
    if (context.defined()) {
      auto shape = sizes.vec();
      shape.push_back(context.size(-1));
      pixels = at::cat({x, context.unsqueeze(-2).unsqueeze(-2).expand(shape)}, -1);
    }
    int64_t batch = 1;
    for (const auto size : sizes.slice(0, sizes.size() - 2)) batch *= size;
    const auto y = apply(pixels.reshape({batch, x.size(-3), x.size(-2), pixels.size(-1)}));
    auto shape = sizes.vec();
    shape.push_back(y.size(-1));
    return y.view(shape);
  }

 protected:
  explicit ConvNet(const ConvNetOptions& options) : options_(options) {}
  ConvolutionPtr add(const std::string& name, int64_t inputs, int64_t outputs, int64_t kernel) {
    return register_module(name, std::make_shared<Convolution>(inputs, outputs, kernel));
  }
  Tensor active(const Tensor& hidden) const { return activate(options_.activation, hidden); }

  ConvNetOptions options_;

 private:
  virtual Tensor apply(const Tensor& x) = 0;  ///< (N, H, W, inputs + context)
};

class Plain : public ConvNet {
 public:
  Plain(const ConvNetOptions& options, int64_t inputs, int64_t outputs, const std::vector<double>& last_bias)
      : ConvNet(options) {
    maps_.push_back(add("0", inputs, options.width, options.kernel));
    for (int64_t i = 1; i <= options.depth; ++i)
      maps_.push_back(add(std::to_string(i), options.width, options.width, 1));
    maps_.push_back(add(std::to_string(options.depth + 1), options.width, outputs, options.kernel));
    init_last(maps_.back()->weight, maps_.back()->bias, options.init_scale, last_bias);
  }

 private:
  Tensor apply(const Tensor& x) override {
    auto hidden = x;
    for (size_t i = 0; i + 1 < maps_.size(); ++i) hidden = active(maps_[i]->forward(hidden));
    return maps_.back()->forward(hidden);
  }

  std::vector<ConvolutionPtr> maps_;
};

class GatedResidual : public ConvNet {
 public:
  GatedResidual(const ConvNetOptions& options, int64_t inputs, int64_t outputs, const std::vector<double>& last_bias)
      : ConvNet(options) {
    const auto width = options.width;
    initial_ = add("initial", inputs, width, options.kernel);
    for (int64_t i = 0; i < options.depth; ++i) {
      // In this order, whatever the compiler's: initial values are drawn as the maps are made.
      const auto inner = add(c10::str(i, "_inner"), width, width, options.kernel);
      blocks_.push_back({inner, add(c10::str(i, "_gated"), width, 2 * width, 1)});
    }
    last_ = add("last", width, outputs, options.kernel);
    init_last(last_->weight, last_->bias, options.init_scale, last_bias);
  }

 private:
  struct Block {
    ConvolutionPtr inner, gated;
  };

  Tensor apply(const Tensor& x) override {
    auto hidden = initial_->forward(x);
    for (const auto& [inner, gated] : blocks_) {
      const auto both = gated->forward(active(inner->forward(active(hidden)))).chunk(2, -1);
      hidden = hidden + both[0] * both[1].sigmoid();
    }
    return last_->forward(active(hidden));
  }

  ConvolutionPtr initial_, last_;
  std::vector<Block> blocks_;
};

}  // namespace

NetPtr build_conv_net(const ConvNetOptions& options, int64_t inputs, int64_t context, int64_t outputs,
                      const std::vector<double>& last_bias) {
  check_choice("type", options.type, {"conv", "gated_residual"});
  at_least(1, "width", options.width);
  at_least(0, "depth", options.depth);
  at_least(1, "kernel", options.kernel);
  if (options.kernel % 2 == 0)
    throw SpecError("kernel", c10::str("must be odd, so that images keep their size, got ", options.kernel));
  check_activation(options.activation);
  if (options.type == "conv") return std::make_shared<Plain>(options, inputs + context, outputs, last_bias);
  return std::make_shared<GatedResidual>(options, inputs + context, outputs, last_bias);
}

}  // namespace diffeo
