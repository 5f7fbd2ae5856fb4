#pragma once

#include "diffeo/layers/nets/net.h"

namespace diffeo {

/// What a conditioner of images looks like.
struct ConvNetOptions {
  std::string type = "conv";
  int64_t width = 32;
  int64_t depth = 1;
  int64_t kernel = 3;
  std::string activation = "relu";
  double init_scale = 0.1;
  static constexpr auto fields() {
    using O = ConvNetOptions;
    return std::tuple{
        optional("type", &O::type,
                 "conv (a convolution, pointwise maps, a convolution) or gated_residual (gated residual blocks)"),
        optional("width", &O::width, "channels of each hidden layer"),
        optional("depth", &O::depth, "pointwise hidden maps of conv, blocks of gated_residual; 0 for none"),
        optional("kernel", &O::kernel, "side of the convolutions' square kernel, odd; the border is padded with zeros"),
        optional("activation", &O::activation, "relu, tanh, silu, gelu, elu, leaky_relu, softplus or sigmoid"),
        optional("init_scale", &O::init_scale, "factor on the initial weights of the last convolution")};
  }
};

/// A convolutional network (*batch, H, W, inputs), (*batch, context) -> (*batch, H, W, outputs): channels last, as the
/// convolutions compute. The context is seen by every pixel. Its last convolution starts with weights scaled by
/// `init_scale` and with `last_bias` (outputs values, or empty for zeros).
///
/// `conv` is the conditioner of Kingma and Dhariwal, "Glow", 2018, https://arxiv.org/abs/1807.03039, section 3.3:
/// kernel, 1x1, kernel. `gated_residual` has blocks h + a sigmoid(b), (a, b) = 1x1(act(conv(act(h)))), near to those of
/// Ho et al., "Flow++", 2019, https://arxiv.org/abs/1902.00275, without attention. Throws SpecError for an unknown type
/// or activation, an even kernel, and sizes below 1 (depth: below 0).
NetPtr build_conv_net(const ConvNetOptions& options, int64_t inputs, int64_t context, int64_t outputs,
                      const std::vector<double>& last_bias = {});

}  // namespace diffeo
