#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>

namespace diffeo {

using torch::Tensor;

/// How the latent rows z_i of a data set depend on each other in training: the columns of Z (n, D) are independent,
/// each normal with covariance C (n, n), whose diagonal is 1 and which a strength s in [0, 1) makes of a known
/// structure; s = 0 is C = I, independent rows.
///
///   log N(Z; 0, C) = -n D / 2 log 2 pi - D / 2 log det C - tr(Z^T C^-1 Z) / 2
///
/// Kirchler, Lippert, Kloft 2023, https://arxiv.org/abs/2209.14933.
class RowDependence {
 public:
  using Ptr = std::shared_ptr<const RowDependence>;

  /// Of C, so that it stays regular.
  static constexpr double most = 0.99;
  /// A function of the strength, a scalar tensor: the mean over rows of the log density, nats.
  using Likelihood = std::function<Tensor(const Tensor& strength)>;

  virtual ~RowDependence() = default;
  /// n
  virtual int64_t rows() const = 0;
  /// The same in the precision and on the device of the latent rows.
  virtual Ptr to(const torch::TensorOptions& options) const = 0;
  /// For a batch drawn uniformly without replacement, z (B, D), `places` (B) int64 being the rows' numbers among the n:
  /// an estimate without bias of the mean over all n rows, exact for B = n. A pair of rows is in a batch with
  /// probability B (B - 1) / (n (n - 1)), so what it contributes counts (n - 1) / (B - 1) times. Gradients reach z and
  /// the strength. Throws Error for places outside of [0, n).
  virtual Likelihood estimate(const Tensor& z, const Tensor& places) const = 0;
};

using RowDependencePtr = RowDependence::Ptr;

/// Rows of a group are equally correlated, rows of two groups not at all: C holds 1 - s + s 1 1^T for each group.
class GroupedRows : public RowDependence {
 public:
  /// `groups` (n) holds any integers, the same for rows of one group. Throws Error if there are none.
  explicit GroupedRows(const Tensor& groups);

  int64_t rows() const override { return group_.size(0); }
  Ptr to(const torch::TensorOptions& options) const override;
  int64_t groups() const { return sizes_.size(0); }
  int64_t largest() const { return sizes_.max().item<int64_t>(); }
  Likelihood estimate(const Tensor& z, const Tensor& places) const override;
  /// For a batch that holds groups whole: the mean over its own rows, exactly. O(B D).
  static Likelihood of_whole_groups(const Tensor& z, const Tensor& groups);

 private:
  Tensor group_;  ///< (n), from 0
  Tensor sizes_;  ///< (G)
};

/// C = (1 - s) I + s K for a known relatedness matrix K, brought to a unit diagonal, by its eigenvectors: found once,
/// O(n^3), or O(n r^2) for a factor; then O(B r) for each batch.
class RelatedRows : public RowDependence {
 public:
  /// From K (n, n), positive semidefinite (small negative eigenvalues are taken for 0).
  static std::shared_ptr<const RelatedRows> of_matrix(const Tensor& matrix);
  /// From L (n, r), K = L L^T.
  static std::shared_ptr<const RelatedRows> of_factor(const Tensor& factor);

  int64_t rows() const override { return eigenvectors_.size(0); }
  Ptr to(const torch::TensorOptions& options) const override;
  /// (r), not negative; the others are 0.
  const Tensor& eigenvalues() const { return eigenvalues_; }
  Likelihood estimate(const Tensor& z, const Tensor& places) const override;

 private:
  RelatedRows(Tensor eigenvalues, Tensor eigenvectors);

  Tensor eigenvalues_;   ///< (r)
  Tensor eigenvectors_;  ///< (n, r)
};

/// The strength in [0, RowDependence::most] at which a likelihood is highest: a grid, then golden sections, to 1e-4.
double best_strength(const RowDependence::Likelihood& likelihood, const Tensor& like);

}  // namespace diffeo
