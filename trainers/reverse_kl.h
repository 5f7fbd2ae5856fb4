#pragma once

#include "diffeo/layers/base/log_density.h"
#include "diffeo/trainers/objective.h"

namespace diffeo {

/// The reverse Kullback-Leibler divergence of a flow q from a target p known up to a constant, in nats:
///
///   KL(q | p) - log Z = E_q[log q(x) - log p(x)],   in training E_q[log q(x) - beta log p(x)],
///
/// on points drawn from the flow, as many as a batch has rows (no_data). beta grows from `anneal_from` to 1 over
/// `anneal` batches, so that the flow does not fall into one mode before it has seen the others. In evaluation beta
/// is 1.
///
/// Estimators of the gradient, all unbiased:
///   reparametrised   of the mean above, through the points;
///   path             without the score term, whose mean is 0: E[(dx / d theta)^T (grad log q - beta grad log p)].
///                    It is exactly 0 for every batch where q = p, and takes one pass: the layers carry grad log q;
///   path_two_pass    the same, grad log q found by a pass back through the flow at the points drawn.
///
/// Vaitl et al., "Fast and unified path gradient estimators for normalizing flows", 2024,
/// https://arxiv.org/abs/2403.15881, eq. 5 and algorithm 1; Roeder et al., "Sticking the landing", 2017,
/// https://arxiv.org/abs/1703.09194.
class ReverseKl : public Objective {
 public:
  static constexpr bool draws_own_points = true;

  struct Options {
    Json target = nullptr;
    std::string estimator = "path";
    int64_t anneal = 0;
    double anneal_from = 0.1;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{
          optional("target", &O::target, "spec of the target; the program's --target"),
          optional("estimator", &O::estimator, "of the gradient: path, reparametrised or path_two_pass"),
          optional("anneal", &O::anneal, "batches over which the target's log density grows to its full size; 0: none"),
          optional("anneal_from", &O::anneal_from, "the part of it at the first batch, in (0, 1]")};
    }
  };

  /// Throws SpecError for options that make no sense, Error for a flow that does not fit the target, that has no
  /// density of single points, or whose base learns without being reparametrised.
  ReverseKl(FlowPtr flow, const Options& options);
  /// With a target of the caller's own, in place of that of the options. It learns nothing, and goes to the precision
  /// and the device that the flow has at each loss.
  ReverseKl(FlowPtr flow, LogDensityPtr target, const Options& options);
  Tensor loss(const Batch& batch) override;

  const LogDensityPtr& target() const { return target_; }

 private:
  Tensor divergence(int64_t draws, const Tensor& beta);
  Tensor next_beta();

  FlowPtr flow_;
  LogDensityPtr target_;
  Options options_;
  Tensor batches_;  ///< seen in training: so that a resumed run goes on with its beta
  bool looked_ = false;
};

}  // namespace diffeo
