// The 64 modes of a product of mixtures in six dimensions, learned from a few points (forward) and from none (reverse):
// the same data, network and optimiser, only the estimator of the gradient differs.
#include "accept.h"
#include "diffeo/samplers/importance.h"
#include "diffeo/trainers/fit.h"
#include "path.h"

namespace {

using namespace diffeo;
using namespace diffeo::testing;

constexpr int64_t features = 6;

struct Result {
  double divergence = 0;   ///< of the divergence that was minimised, nats
  double sample_size = 0;  ///< effective, of points drawn from the flow, as a part of their number
};

FitOptions options(uint64_t seed) {
  return {.batch_size = 250, .steps = 3000, .learning_rate = 1e-3, .checkpoint_seconds = 0, .seed = seed};
}

double sample_size(Flow& flow, LogDensity& target) {
  torch::manual_seed(77);
  const auto [x, log_q] = flow.draw({50000});
  return effective_sample_size(target.log_prob(x) - log_q);
}

Result forward(const std::string& estimator, uint64_t seed, int64_t rows) {
  torch::manual_seed(seed);
  const auto data = in_memory({.x = sample_many_modes(rows, features)});
  const auto flow = couplings({});
  const auto target = many_modes(features);
  ForwardKl objective(flow, target, {.estimator = estimator});
  fit(objective, *data, nullptr, options(seed));
  torch::NoGradGuard no_grad;
  torch::manual_seed(99);
  const auto x = sample_many_modes(50000, features);
  return {(target->log_prob(x) - flow->log_prob(x)).mean().item<double>(), sample_size(*flow, *target)};
}

Result reverse(const std::string& estimator, uint64_t seed) {
  torch::manual_seed(seed);
  const auto flow = couplings({});
  const auto target = many_modes(features);
  ReverseKl objective(flow, target, {.estimator = estimator});
  fit(objective, *no_data(25000), nullptr, options(seed));
  torch::NoGradGuard no_grad;
  torch::manual_seed(99);
  const auto [x, log_q] = flow->draw({50000});
  return {(log_q - target->log_prob(x)).mean().item<double>(), sample_size(*flow, *target)};
}

}  // namespace

int main() {
  Acceptance accept;
  for (uint64_t seed : {1, 2}) {
    const auto name = [&](const char* claim) { return claim + std::string("_seed") + std::to_string(seed); };
    const auto likelihood = forward("maximum_likelihood", seed, 2000), path = forward("path", seed, 2000);
    accept.at_most(name("forward_path_kl"), path.divergence, 0.6);
    accept.at_least(name("forward_path_ess"), path.sample_size, 0.3);
    accept.at_most(name("forward_likelihood_ess"), likelihood.sample_size, 0.15);
    accept.at_least(name("forward_kl_likelihood_over_path"), likelihood.divergence / path.divergence, 2.5);

    const auto plain = reverse("reparametrised", seed), by_path = reverse("path", seed);
    std::printf("reverse seed %d: KL reparametrised %.4f, path %.4f; ESS reparametrised %.4f\n", static_cast<int>(seed),
                plain.divergence, by_path.divergence, plain.sample_size);
    accept.at_least(name("reverse_path_ess_gain"), by_path.sample_size - plain.sample_size, 0.03);
    accept.at_least(name("reverse_path_ess"), by_path.sample_size, 0.88);
  }
  return accept.exit_code();
}
