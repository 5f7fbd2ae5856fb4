#pragma once

#include <optional>

#include "diffeo/layers/base/module.h"
#include "diffeo/layers/base/options.h"
#include "diffeo/layers/nets/dense.h"

namespace torch::nn {
class BatchNorm1dImpl;
}

namespace diffeo {

/// What a conditioner looks like. The same options serve dense networks (build_net) and masked ones (Made).
struct NetOptions {
  std::string type = "mlp";
  int64_t width = 64;
  int64_t depth = 2;
  std::string activation = "relu";
  double dropout = 0;
  bool batch_norm = false;
  double init_scale = 0.1;
  std::string precision = "full";
  static constexpr auto fields() {
    using O = NetOptions;
    return std::tuple{
        optional("type", &O::type, "mlp, or residual (pre-activation blocks of two linear maps)"),
        optional("width", &O::width, "units in each hidden layer"),
        optional("depth", &O::depth, "hidden layers of an mlp, blocks of a residual network"),
        optional("activation", &O::activation, "relu, tanh, silu, gelu, elu, leaky_relu, softplus or sigmoid"),
        optional("dropout", &O::dropout, "probability of dropping a hidden unit in training"),
        optional("batch_norm", &O::batch_norm, "batch normalisation in the residual blocks"),
        optional("init_scale", &O::init_scale, "factor on the initial weights of the last linear map"),
        optional("precision", &O::precision,
                 "full, or bfloat16: factors of float32 products are rounded to it (faster on processors and GPUs that "
                 "multiply it; dense networks without dropout and batch normalisation)")};
  }
};

/// A network as one operation of dense.h on [x, context], with gates of the context where the shape says so.
struct DenseForm {
  dense::Shape shape;
  std::vector<Tensor> parameters;
};

/// A network (*batch, inputs), (*batch, context) -> (*batch, outputs). No densities here.
class Net : public Module {
 public:
  virtual Tensor forward(const Tensor& x, const Tensor& context = {}) = 0;
  /// What the network is to a node of autograd that has it inside; nothing if it is more than one operation, as with
  /// dropout in training.
  virtual std::optional<DenseForm> dense_form(bool /*has_context*/) const { return std::nullopt; }
};
using NetPtr = std::shared_ptr<Net>;

/// A dense network with `context` more inputs. Its last linear map starts with weights scaled by
/// `init_scale` and with `last_bias` (outputs values, or empty for zeros), so that a layer starts near the identity.
/// Throws SpecError for an unknown type or activation and for sizes below 1.
NetPtr build_net(const NetOptions& options, int64_t inputs, int64_t context, int64_t outputs,
                 const std::vector<double>& last_bias = {});

/// Applies an activation function by name. Throws SpecError listing the known names.
Tensor activate(const std::string& name, const Tensor& x);
/// Throws SpecError at "activation" unless the name is known.
void check_activation(const std::string& name);

/// Throws SpecError for an unknown type or activation, sizes below 1 and a dropout outside of [0, 1).
void check_net_options(const NetOptions& options);

/// Batch normalisation of hidden units (*batch, width). A batch of fewer than two rows, which has no deviation, is
/// normalised by the running statistics in training too.
Tensor normalised(torch::nn::BatchNorm1dImpl& norm, const Tensor& x);

/// Starts the second map of a residual block near zero, so that the block starts near the identity.
void init_near_zero(Tensor weight, Tensor bias);

/// Scales the weight of a linear map and sets its bias, in place. For the last map of a conditioner.
void init_last(Tensor weight, Tensor bias, double scale, const std::vector<double>& last_bias);

}  // namespace diffeo
