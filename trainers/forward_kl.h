#pragma once

#include "diffeo/layers/base/log_density.h"
#include "diffeo/trainers/objective.h"

namespace diffeo {

/// The forward Kullback-Leibler divergence of a target p from a flow q, in nats, on points of the target:
///
///   KL(p | q) + log Z = E_p[log p(x) - log q(x)],
///
/// where log p is known up to a constant, with its gradient (the force). Estimators of the gradient, all unbiased:
///   maximum_likelihood   of the mean above, which does not look at the force;
///   path                 E[(dz / d theta)^T (grad log p_0 - grad log q_0)] with z the latent of x, q_0 the base,
///                        p_0 the density of the latents: the divergence is that of p_0 from q_0 too. It is 0 for
///                        every set of points where q = p, so that a few points do not make the flow fit their noise.
///                        One pass: the layers carry grad log p_0 along;
///   path_two_pass        the same, from grad log q - grad log p at the points and a pass from their latents to them.
///
/// Vaitl et al., "Fast and unified path gradient estimators for normalizing flows", 2024,
/// https://arxiv.org/abs/2403.15881, section 4.
class ForwardKl : public Objective {
 public:
  struct Options {
    Json target = nullptr;
    std::string estimator = "path";
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{
          optional("target", &O::target, "spec of the target; the program's --target"),
          optional("estimator", &O::estimator, "of the gradient: path, maximum_likelihood or path_two_pass")};
    }
  };

  /// Throws SpecError for an unknown estimator, Error for a flow that does not fit the target or has no density of
  /// single points.
  ForwardKl(FlowPtr flow, const Options& options);
  /// With a target of the caller's own, in place of that of the options. It learns nothing, and goes to the precision
  /// and the device that the flow has at each loss.
  ForwardKl(FlowPtr flow, LogDensityPtr target, const Options& options);
  Tensor loss(const Batch& batch) override;

  const LogDensityPtr& target() const { return target_; }

 private:
  Tensor by_path(const Batch& batch);
  Tensor by_path_in_two(const Batch& batch);
  Sloped slope_at(const Tensor& x);
  Tensor with_base(const Tensor& loss, const Tensor& z, const Tensor& weight);

  FlowPtr flow_;
  LogDensityPtr target_;
  Options options_;
  bool looked_ = false;
};

}  // namespace diffeo
