#pragma once

// What the experiments with path gradients share.

#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "diffeo/flows/flow.h"
#include "diffeo/flows/score.h"
#include "diffeo/samplers/target.h"
#include "diffeo/trainers/forward_kl.h"
#include "diffeo/trainers/reverse_kl.h"

namespace diffeo::testing {

/// A product of mixtures of two normals at +-1 of variance 1/2, 2^features modes: normalised.
inline TargetPtr many_modes(int64_t features) {
  return build_target({{"type", "gaussian_mixture"},
                       {"features", features},
                       {"arrangement", "corners"},
                       {"radius", 1.0},
                       {"scale", std::sqrt(0.5)}});
}
/// n points of it, float64.
inline Tensor sample_many_modes(int64_t n, int64_t features) {
  const auto sign = 2 * torch::randint(2, {n, features}, torch::kFloat64) - 1;
  return sign + std::sqrt(0.5) * torch::randn({n, features}, torch::kFloat64);
}

struct Couplings {
  int64_t features = 6, count = 6, width = 64, depth = 3;
  Json map = {{"type", "affine"}};
  std::string activation = "tanh", mask = "alternating";
  bool inverted = false;  ///< wrapped in Inverse: a map without a formula for its inverse then draws by a formula
  double init_scale = 0.1;
};

inline FlowPtr couplings(const Couplings& c, torch::Dtype dtype = torch::kFloat64) {
  Json layers = Json::array();
  for (int64_t i = 0; i < c.count; ++i) {
    Json layer = {{"type", "coupling"}, {"features", c.features}, {"flip", i % 2 == 1}, {"map", c.map}};
    layer["mask"] = c.mask;
    layer["net"] = {{"width", c.width}, {"depth", c.depth}, {"activation", c.activation}, {"init_scale", c.init_scale}};
    layers.push_back(c.inverted ? Json{{"type", "inverse"}, {"layer", layer}} : layer);
  }
  auto flow =
      build_flow({{"type", "flow"}, {"layers", layers}, {"base", {{"type", "normal"}, {"features", c.features}}}});
  flow->to(dtype);
  return flow;
}

/// Moves parameters away from where they start, where half of all derivatives are zero.
inline void shake(Module& module, double by) {
  torch::NoGradGuard no_grad;
  for (auto& parameter : module.parameters()) parameter.add_(torch::randn_like(parameter), by);
}

/// A flow as the target of another: what it learns there stays out of it.
class FlowDensity : public LogDensity {
 public:
  explicit FlowDensity(FlowPtr flow) : LogDensity(flow->space()), flow_(std::move(flow)) {}

 private:
  Tensor evaluate(const Tensor& x) override { return flow_->log_prob(x); }
  Sloped evaluate_with_gradient(const Tensor& x) override { return score_of(*flow_, x); }
  FlowPtr flow_;
};

/// The gradient of an objective by all parameters of its flow, as one vector. Random numbers are those of `seed`.
inline Tensor gradient(Objective& objective, Flow& flow, const Batch& batch, int64_t seed) {
  torch::manual_seed(seed);
  std::vector<Tensor> flat;
  for (const auto& found : torch::autograd::grad({objective.loss(batch)}, flow.parameters(), {}, {}, false, true))
    flat.push_back(found.flatten());
  return torch::cat(flat);
}

inline double largest(const Tensor& difference) { return difference.abs().max().item<double>(); }

}  // namespace diffeo::testing
