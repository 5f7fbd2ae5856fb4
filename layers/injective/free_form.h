#pragma once

#include "diffeo/layers/base/tangents.h"
#include "diffeo/layers/nets/dense_tangents.h"
#include "diffeo/layers/nets/net.h"

namespace diffeo {

/// A free-form injective layer: two unconstrained networks, an encoder f: R^D -> R^d and a decoder g: R^d -> R^D.
///
/// forward is z = f(x), with log_det -1/2 log det g'(z)^T g'(z): the density of a flow is the one on the manifold
/// g(R^d), with respect to its d-dimensional volume, at g(f(x)). inverse is x = g(z). The two undo each other on the
/// manifold only as far as they were trained to (objective free_form_injective).
///
/// Sorrenson et al., "Lifting Architectural Constraints of Injective Flows", 2024, https://arxiv.org/abs/2306.01843.
class FreeForm : public InjectiveLayer {
 public:
  /// What encoder and decoder look like. No dropout and no batch normalisation: points would depend on one another.
  struct NetShape {
    std::string type = "residual";
    int64_t width = 128;
    int64_t depth = 2;
    std::string activation = "silu";
    static constexpr auto fields() {
      using O = NetShape;
      return std::tuple{optional("type", &O::type, "mlp, or residual (pre-activation blocks of two linear maps)"),
                        optional("width", &O::width, "units in each hidden layer"),
                        optional("depth", &O::depth, "hidden layers of an mlp, blocks of a residual network"),
                        optional("activation", &O::activation,
                                 "silu, tanh or softplus: the volume's gradient takes their second derivative")};
    }
  };
  struct Options {
    int64_t features = 0;
    int64_t latent = 0;
    NetShape encoder, decoder;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{required("features", &O::features, "D, at least 2"),
                        required("latent", &O::latent, "d, the dimension of the manifold, at least 1 and below D"),
                        optional("encoder", &O::encoder, "network from the data to the latent space"),
                        optional("decoder", &O::decoder, "network from the latent space to the data")};
    }
  };

  explicit FreeForm(const Options& options);

  Json spec() const override { return write("free_form", options_); }

  Tensor forward_value(const Tensor& x, const Tensor& context) override;
  Tensor inverse_value(const Tensor& y, const Tensor& context) override;
  Pushed push_forward(const Tensor& x, const Tensor& tangents, const Tensor& context) override;
  Pushed push_inverse(const Tensor& y, const Tensor& tangents, const Tensor& context) override;

  /// One pass there and back, for training.
  struct RoundTrip {
    Tensor latent;          ///< z = f(x), (B, d)
    Tensor reconstruction;  ///< g(z), (B, D)
    Tensor carried;         ///< f'(x) g'(z) v, (K, B, d), with g'(z) v held fixed
  };
  /// For points x (B, D) and probes v (K, B, d). Encoder, decoder and tangents share what they compute: a step costs
  /// 10/6 of the products of a plain autoencoder's.
  RoundTrip round_trip(const Tensor& x, const Tensor& probes);

 private:
  Options options_;
  dense::Shape encoder_shape_, decoder_shape_;
  NetPtr encoder_, decoder_;
};

}  // namespace diffeo
