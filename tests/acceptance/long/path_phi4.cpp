// A scalar field on a lattice of 6 x 6 sites, learned by reverse KL: path gradients beside plain ones.
#include "accept.h"
#include "diffeo/samplers/importance.h"
#include "diffeo/trainers/fit.h"
#include "path.h"

namespace {

using namespace diffeo;
using namespace diffeo::testing;

struct Result {
  double sample_size = 0, divergence = 0;
  Estimate log_z;
};

Result learned(const std::string& estimator, uint64_t seed, int64_t steps) {
  const auto target = build_target({{"type", "phi4"}, {"side", 6}});
  torch::manual_seed(seed);
  const auto flow = couplings({.features = 36, .count = 8, .width = 128, .depth = 2}, torch::kFloat32);
  ReverseKl objective(flow, target, {.estimator = estimator});
  fit(objective, *no_data(100 * 512), nullptr,
      {.batch_size = 512, .steps = steps, .learning_rate = 1e-3, .checkpoint_seconds = 0, .seed = seed});
  torch::NoGradGuard no_grad;
  torch::manual_seed(99);
  std::vector<Tensor> log_weights;
  for (int i = 0; i < 20; ++i) {
    const auto [x, log_q] = flow->draw({5000});
    log_weights.push_back((target->log_prob(x) - log_q).to(torch::kFloat64));
  }
  const auto all = torch::cat(log_weights);
  return {effective_sample_size(all), -all.mean().item<double>(), log_mean_weight(all)};
}

}  // namespace

int main() {
  Acceptance accept;
  for (uint64_t seed : {1, 2})
    for (int64_t steps : {1000, 4000}) {
      const auto plain = learned("reparametrised", seed, steps), path = learned("path", seed, steps);
      const auto name = "phi4_seed" + std::to_string(seed) + "_steps" + std::to_string(steps);
      for (const auto& [what, r] : {std::pair{"reparametrised", plain}, {"path", path}})
        std::printf("%s %s: ESS %.4f, E_q[log q - log p] %.4f, log Z %.4f +- %.4f\n", name.c_str(), what, r.sample_size,
                    r.divergence, r.log_z.value, r.log_z.error);
      accept.at_least(name + "_ess_path_over_plain", path.sample_size / plain.sample_size, 1);
    }
  return accept.exit_code();
}
