#pragma once

#include <optional>

#include "diffeo/layers/nets/made_inverse.h"
#include "diffeo/layers/nets/net.h"

namespace diffeo {

/// What a masked network computes, besides how it looks.
struct MadeShape {
  /// The place of each of the D features in the order: 1 ... D, each once. A feature's outputs see the features of
  /// lower degree and the context.
  std::vector<int64_t> degrees;
  int64_t context = 0;
  int64_t outputs = 1;    ///< P, for each feature
  bool periodic = false;  ///< the features are angles: the network sees their cosine and sine
};

/// A network whose outputs for a feature see the features before it only.
class MaskedNet : public Net {
 public:
  /// What to do for each degree, so that features can be found one by one at the cost of one pass (made_inverse.h).
  /// None where the rows of a batch do not stand alone (dropout and batch normalisation in training), on other devices
  /// than the CPU and CUDA, in other types than float32 and float64, and for a single feature, which takes one pass
  /// anyway.
  virtual std::optional<MadePlan> plan() const = 0;
};
using MaskedNetPtr = std::shared_ptr<MaskedNet>;

/// Whether autograd would record what a network does with these tensors; `context` may be undefined.
bool gradients_wanted(const Module& net, const Tensor& x, const Tensor& context);

/// A masked dense network (*batch, D), (*batch, context) -> (*batch, D * P): one pass gives every feature's outputs.
///
/// The hidden units have degrees too and are sorted by them: a unit of degree d sees the units of the layer before
/// with degrees up to d, an output of feature i those with degrees below that of i. Degrees run evenly from 1 to D - 1;
/// with a context they start from 0, so that the first feature depends on it too. With residual blocks, the context is
/// added to the first hidden layer by a linear map and gates every block (a gated linear unit).
///
/// Germain et al., "MADE", 2015, https://arxiv.org/abs/1502.03509, eq. 12-14; blocks as in Durkan et al., "Neural
/// Spline Flows", 2019, https://arxiv.org/abs/1906.04032, appendix B.
///
/// Throws SpecError as build_net does. The last map starts as in build_net, with `last_bias` of D * P values.
MaskedNetPtr build_made(const NetOptions& options, const MadeShape& shape, const std::vector<double>& last_bias = {});

/// Degrees of D features: 1 ... D for the order `natural`, D ... 1 for `reverse`, or `random` by a seed.
/// Throws SpecError for another order.
std::vector<int64_t> feature_degrees(const std::string& order, int64_t features, int64_t seed);

}  // namespace diffeo
