#pragma once

#include <functional>

#include "diffeo/data/dataset.h"
#include "diffeo/flows/flow.h"

namespace diffeo {

/// Mean and spread of the log-likelihoods of many rows, in one pass.
class LogLikelihoods {
 public:
  /// Adds rows: (n) in nats, with weights (n) if rows count differently.
  void add(const Tensor& log_prob, const Tensor& weight = {});

  int64_t rows() const { return rows_; }
  int64_t impossible() const { return impossible_; }  ///< rows of density 0, of log-likelihood -inf
  double mean() const;            ///< nats a row; -inf if there are impossible rows, NaN without rows
  double standard_error() const;  ///< of the mean over rows that are possible, nats
  /// Minus the mean in bits for each of `features` numbers.
  double bits_per_dimension(int64_t features) const;

 private:
  int64_t rows_ = 0, impossible_ = 0;
  double pilot_ = 0;  // near to the mean: sums of differences from it lose no digits
  double weight_ = 0, sum_ = 0, squared_weight_ = 0, squared_weight_sum_ = 0, squares_ = 0;
};

/// Calls `sink(log_prob (n) in nats on the CPU, batch)` for one batch after another.
/// In evaluation mode, without gradients, on the flow's device; the mode is put back. A flow with random layers, which
/// has no log_prob, gives the lower bound of `paths` paths (Flow::log_prob_bound), or throws Error where they are 0.
void each_log_prob(Flow& flow, BatchStream& rows,
                   const std::function<void(const Tensor& log_prob, const Batch& batch)>& sink, int64_t paths = 0);

/// The same for flows with an injective layer: `sink(projection, batch)` with tensors on the CPU.
void each_projection(Flow& flow, BatchStream& rows,
                     const std::function<void(const Projection& projection, const Batch& batch)>& sink);

/// What the rows say about an injective flow.
class ManifoldFit {
 public:
  void add(const Projection& projection, const Batch& batch);

  const LogLikelihoods& log_likelihoods() const { return log_likelihoods_; }  ///< on the manifold
  double reconstruction_error() const;  ///< mean squared distance of a row to its projection, summed over features
  double distance() const;              ///< mean distance of a row to its projection

 private:
  LogLikelihoods log_likelihoods_;
  double weight_ = 0, squares_ = 0, distances_ = 0;
};

}  // namespace diffeo
