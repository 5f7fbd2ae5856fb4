#pragma once

#include "diffeo/layers/base/layer.h"

namespace diffeo {

/// The channels of an image in the order of their weights, the largest first, log_det = 0: in front of a factor_out,
/// the channels of large weight go on.
///
/// The order never depends on the image at hand, so the layer is a permutation, exact to the bit. Orders:
///
///   eiw         by the weights that a network without data, the solver, makes of the number of channels,
///               w = softmax(V2 relu(V1 C)): the paper's
///   static      as they come, the plain split
///   negentropy  by a running mean of each channel's negentropy, measured in the first `settle` batches of training and
///               frozen after them: the half that is least like a normal, which is what factored-out channels are taken
///               for, goes on. Two channels change places only if they differ by more than `margin`, and within each
///               half the channels stay in order: a change disturbs the layers after it, and near ties would change all
///               the time
///
/// Equal weights keep the order of the channels. The likelihood has no gradient by V1 and V2. They learn from a penalty
/// (penalty.h) that draws w to what a second network, the guider, makes of the shuffled image, pooled over its pixels
/// (g_b): q_b = softmax(U2 relu(U1 g_b)). `regulariser` kl: the mean over images of KL(w || q_b); as_coded:
/// -H(w) - <w, mean q_b>, which is what the authors' program computes. It reaches the layers before it too.
///
/// V1 starts near 1/C and V2 at 0, so that a new layer is the plain split.
///
/// Chen, Du, Li, Zeng and Paisley, "Entropy-informed weighting channel normalizing flow for deep generative models",
/// Pattern Recognition 2025, https://arxiv.org/abs/2407.04958.
class EiwShuffle : public Layer {
 public:
  struct Options {
    std::vector<int64_t> shape;
    std::string order = "eiw";
    std::string regulariser = "kl";
    int64_t reduction = 16;
    double decay = 0.99;
    double margin = 0.01;
    int64_t settle = 300;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{required("shape", &O::shape, "[C, H, W]"),
                        optional("order", &O::order, "eiw (the solver's), static (as they come) or negentropy"),
                        optional("regulariser", &O::regulariser, "penalty of eiw: kl or as_coded"),
                        optional("reduction", &O::reduction, "the guider has C / reduction hidden units, at least 1"),
                        optional("decay", &O::decay, "of the running negentropy, for each batch; in [0, 1)"),
                        optional("margin", &O::margin,
                                 "nats by which a channel that stays behind must exceed one that goes on to take its "
                                 "place; at least 0"),
                        optional("settle", &O::settle,
                                 "batches of training after which negentropy is measured no more and its order stays")};
    }
  };

  explicit EiwShuffle(const Options& options);

  /// Which channel comes first, second, ...: (C), int64. It depends on the parameters (or the running negentropy)
  /// alone, so it is the same both ways until they change.
  Tensor order() const;
  /// w (C) of the solver, with its graph. Only of order eiw.
  Tensor weights() const;
  /// log q (B, C) of the guider for pooled images g (B, C). Only of order eiw.
  Tensor guided(const Tensor& pooled) const;

  Traits traits() const override { return {.constant_log_det = true}; }
  Json spec() const override { return write("eiw_shuffle", options_); }

 private:
  Mapped map(const Tensor& x, const Tensor& context) override;
  Mapped unmap(const Tensor& y, const Tensor& context) override;

  Tensor solver_logits() const;
  void measure(const Tensor& pixels);
  void exchange();

  Options options_;
  Tensor solver_hidden_, solver_out_;  ///< V1 (C/2, 1) and V2 (C, C/2)
  Tensor guider_hidden_, guider_out_;  ///< U1 (C/reduction, C) and U2 (C, C/reduction)
  Tensor negentropy_, batches_;        ///< running mean (C) in nats, and how many batches it has seen
  Tensor by_negentropy_;               ///< the order that it gives (C), int64
};

/// The penalty of weights w (C), log w given, for log q (B, C): a scalar. `as_coded` is -H(w) - <w, mean over b of
/// q_b>, otherwise it is the mean over b of KL(w || q_b).
Tensor eiw_regulariser(const Tensor& log_weights, const Tensor& log_guided, bool as_coded);

}  // namespace diffeo
