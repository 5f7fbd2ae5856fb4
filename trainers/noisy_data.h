#pragma once

#include "diffeo/trainers/objective.h"

namespace diffeo {

/// Another objective (its child `objective`), on points with noise.
///
/// With `dequantize` the points are x + u, u uniform on [0, 1): their mean log density is no more than that of the
/// discrete values (Theis et al. 2016, https://arxiv.org/abs/1511.01844, eq. 4).
class NoisyData : public Objective {
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

  /// `like` has the space, dtype and device of the points: the flow of the objective. `scale` is the unit of the noise
  /// of each column, (D) or *event; undefined: 1. Throws SpecError for a negative noise and for indices beyond the
  /// columns, Error for a scale that does not fit.
  NoisyData(ObjectivePtr objective, const Flow& like, const Options& options, const Tensor& scale = {});
  Tensor loss(const Batch& batch) override;

 private:
  ObjectivePtr objective_;
  Tensor noise_;     ///< *event, standard deviations; undefined for none
  Tensor discrete_;  ///< *event, 1 for columns to dequantise, else 0; undefined for none
};

}  // namespace diffeo
