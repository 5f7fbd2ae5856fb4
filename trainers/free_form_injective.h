#pragma once

#include "diffeo/layers/injective/free_form.h"
#include "diffeo/layers/sequential/sequential.h"
#include "diffeo/trainers/objective.h"

namespace diffeo {

/// Trains an injective flow: likelihood on its manifold, and the points' squared distance to it.
///
///   loss = -log p_base(z) - 1/K sum_k v_k^T f'(x) sg(g'(z) v_k) + beta |x - g(z)|^2,   z = f(x)
///
/// with encoder f, decoder g, stop-gradient sg and probes v_k, sqrt(d) times K random orthonormal vectors. The second
/// term stands for the volume 1/2 log det g'^T g': where f' is the pseudoinverse of g' it has the volume's gradient,
/// -tr(f' dg') = tr(df' g'), but not its value. Sorrenson et al. 2024, https://arxiv.org/abs/2306.01843, section 4.
///
/// `volume` chooses the term: `off_manifold`, as above; `on_manifold` takes f' at g(z) instead, and `exact` is the
/// volume itself, d tangents a point (maximum likelihood on the manifold; Caterini et al. 2021,
/// https://arxiv.org/abs/2106.01413). Both of these have no lower bound: a decoder can fold the manifold without end
/// and collect the projections in a few places.
///
/// Points, noise and distances are in the units behind the layers without parameters at the flow's front: those of
/// standardised data. In evaluation mode the loss has the exact volume, of at most 64 rows of a batch, in place of the
/// surrogate: an upper bound of nothing, but comparable over time. It leaves out the volume of the layers at the front,
/// which training does not change.
class FreeFormInjective : public Objective {
 public:
  struct Options {
    double beta = 10;
    int64_t probes = 1;
    double noise = 0;
    int64_t warmup_steps = 0;
    std::string volume = "off_manifold";
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{
          optional("beta", &O::beta, "weight of the squared distance between points and reconstructions"),
          optional("probes", &O::probes, "K, random directions a point, up to the latent dimension"),
          optional("noise", &O::noise, "standard deviation of noise on the training points, in standardised units"),
          optional("warmup_steps", &O::warmup_steps,
                   "steps over which the likelihood's weight grows from 0 to 1: reconstruction comes first"),
          optional("volume", &O::volume, "off_manifold, on_manifold or exact")};
    }
  };

  /// Throws SpecError for options out of range, Error for a flow without an injective layer.
  FreeFormInjective(FlowPtr flow, const Options& options);
  Tensor loss(const Batch& batch) override;

 private:
  struct Terms {
    Tensor latent, reconstruction;  ///< (B, d), (B, D)
    Tensor volume;                  ///< (B), or what has its gradient
  };
  Terms training_terms(const Tensor& x, const Tensor& context);
  Tensor validation_volume(const Tensor& x, const Tensor& context, const Tensor& weight);
  Tensor probes_for(const Tensor& x) const;

  FlowPtr flow_;
  Options options_;
  std::vector<LayerPtr> front_;       ///< of the flow, without parameters
  std::shared_ptr<Sequential> core_;  ///< the flow's other layers
  std::shared_ptr<FreeForm> only_;    ///< the core, if it is one free-form layer
  int64_t latent_ = 0;
  Tensor steps_;  ///< taken so far, for the warm-up; undefined without one
};

}  // namespace diffeo
