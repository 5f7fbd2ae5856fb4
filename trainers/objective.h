#pragma once

#include "diffeo/data/dataset.h"
#include "diffeo/flows/flow.h"

namespace diffeo {

/// Turns a batch into the scalar to minimise. All that must learn is its child.
class Objective : public Module {
 public:
  /// A scalar, in nats where it is a likelihood. `weight` of the batch, where given, weighs its rows: a row of weight 2
  /// counts as two rows, one of weight 0 as none. Randomness comes from torch's default generator. It is called with
  /// gradients disabled in evaluations; an objective that differentiates by its inputs enables them itself.
  virtual Tensor loss(const Batch& batch) = 0;
};

/// Minus the mean (weighted) log likelihood of a flow, in nats.
///
/// With `dequantize` it is that of x + u, u uniform on [0, 1): on average no less than that of the discrete values
/// (Theis et al. 2016, https://arxiv.org/abs/1511.01844, eq. 4).
class MaximumLikelihood : public Objective {
 public:
  struct Options {
    double noise = 0;
    std::vector<int64_t> dequantize;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{
          optional("noise", &O::noise,
                   "standard deviation of Gaussian noise on the training points, in units of each column's own"),
          optional("dequantize", &O::dequantize,
                   "indices of integer columns that get uniform noise on [0, 1), in training and evaluation")};
    }
  };

  explicit MaximumLikelihood(FlowPtr flow);
  /// `scale` is the unit of the noise of each column, (D) or *event; undefined: 1.
  /// Throws SpecError for a negative noise and for indices beyond the columns, Error for a scale that does not fit.
  MaximumLikelihood(FlowPtr flow, const Options& options, const Tensor& scale = {});
  Tensor loss(const Batch& batch) override;

 private:
  FlowPtr flow_;
  Tensor noise_;     ///< *event, standard deviations; undefined for none
  Tensor discrete_;  ///< *event, 1 for columns to dequantise, else 0; undefined for none
};

/// The mean of `values` (B), weighted by `weight` (B) where it is defined. Values of weight 0 may be anything.
Tensor weighted_mean(const Tensor& values, const Tensor& weight);

}  // namespace diffeo
