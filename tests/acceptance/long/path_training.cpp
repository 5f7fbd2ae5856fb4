// The 64 modes of a product of mixtures in six dimensions, learned from a few points (forward) and from none (reverse):
// the same data, network and optimiser, only the estimator of the gradient differs.
#include <algorithm>

#include "accept.h"
#include "diffeo/samplers/importance.h"
#include "diffeo/trainers/fit.h"
#include "path.h"

namespace {

using namespace diffeo;
using namespace diffeo::testing;

constexpr int64_t features = 6;

/// How the networks start: as linear layers usually do (uniform weights of variance 1 / (3 inputs), random biases),
/// with weights from N(0, 1 / inputs) and biases 0, or near zero in the last map, as flows have them otherwise. The
/// last makes a flow start near the identity, where the best normal for each feature is a saddle of the reverse
/// divergence of a product.
enum class Start { usual, unit_variance, near_identity };

/// A plain Real NVP: log scales without a bound, drawing by formula.
FlowPtr real_nvp(Start start) {
  const auto flow = couplings({.map = {{"type", "affine"}, {"scale", "exp"}},
                               .inverted = true,
                               .init_scale = start == Start::near_identity ? 0.1 : 1.0});
  if (start != Start::unit_variance) return flow;
  torch::NoGradGuard no_grad;
  for (auto& parameter : flow->parameters())
    if (parameter.dim() == 2)
      parameter.normal_(0, 1 / std::sqrt(static_cast<double>(parameter.size(1))));
    else
      parameter.zero_();
  return flow;
}

struct Result {
  double divergence = 0;   ///< of the divergence that was minimised, nats
  double sample_size = 0;  ///< effective, of points drawn from the flow, as a part of their number
};

FitOptions options(uint64_t seed) {
  return {
      .batch_size = 250, .steps = 3000, .learning_rate = 1e-3, .clip_norm = 0, .checkpoint_seconds = 0, .seed = seed};
}

/// The median of nine samples of 20,000 points: the weights have a tail, and in one sample of several a single point
/// outweighs all others (0.015 beside 0.45 for the same flow).
double sample_size(Flow& flow, LogDensity& target) {
  torch::manual_seed(77);
  std::vector<double> sizes;
  for (int sample = 0; sample < 9; ++sample) {
    const auto [x, log_q] = flow.draw({20000});
    sizes.push_back(effective_sample_size(target.log_prob(x) - log_q));
  }
  std::sort(sizes.begin(), sizes.end());
  return sizes[sizes.size() / 2];
}

Result forward(const std::string& estimator, Start start, uint64_t seed, int64_t rows) {
  torch::manual_seed(seed);
  const auto data = in_memory({.x = sample_many_modes(rows, features)});
  const auto flow = real_nvp(start);
  const auto target = many_modes(features);
  ForwardKl objective(flow, target, {.estimator = estimator});
  fit(objective, *data, nullptr, options(seed));
  torch::NoGradGuard no_grad;
  torch::manual_seed(99);
  const auto x = sample_many_modes(50000, features);
  return {(target->log_prob(x) - flow->log_prob(x)).mean().item<double>(), sample_size(*flow, *target)};
}

Result reverse(const std::string& estimator, Start start, uint64_t seed) {
  torch::manual_seed(seed);
  const auto flow = real_nvp(start);
  const auto target = many_modes(features);
  ReverseKl objective(flow, target, {.estimator = estimator});
  fit(objective, *no_data(25000), nullptr, options(seed));
  torch::NoGradGuard no_grad;
  torch::manual_seed(99);
  const auto [x, log_q] = flow->draw({50000});
  return {(log_q - target->log_prob(x)).mean().item<double>(), sample_size(*flow, *target)};
}

struct Pair {
  Result usual, path;  ///< by the usual estimator and by path gradients
};

Pair forward_pair(const char* how, Start start, uint64_t seed, int64_t rows = 2000) {
  const Pair pair{forward("maximum_likelihood", start, seed, rows), forward("path", start, seed, rows)};
  std::printf("forward, %s, %ld points, seed %ld: KL likelihood %.4f, path %.4f; ESS likelihood %.4f, path %.4f\n", how,
              static_cast<long>(rows), static_cast<long>(seed), pair.usual.divergence, pair.path.divergence,
              pair.usual.sample_size, pair.path.sample_size);
  std::fflush(stdout);
  return pair;
}

Pair reverse_pair(const char* how, Start start, uint64_t seed) {
  const Pair pair{reverse("reparametrised", start, seed), reverse("path", start, seed)};
  std::printf("reverse, %s, seed %ld: KL reparametrised %.4f, path %.4f; ESS reparametrised %.4f, path %.4f\n", how,
              static_cast<long>(seed), pair.usual.divergence, pair.path.divergence, pair.usual.sample_size,
              pair.path.sample_size);
  std::fflush(stdout);
  return pair;
}

}  // namespace

int main() {
  Acceptance accept;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const auto name = [&](const char* claim) { return claim + std::string("_seed") + std::to_string(seed); };
    // Likelihood overfits the more the wider the networks start, and the reparametrised gradient suffers the more the
    // narrower. The experiment that this repeats does not say how its networks start: for each divergence it is the
    // start with which the usual estimator comes to the figures given there. The other is printed below.
    const auto ahead = forward_pair("start of unit variance", Start::unit_variance, seed);
    accept.at_most(name("forward_path_kl"), ahead.path.divergence, 0.6);
    accept.at_least(name("forward_path_ess"), ahead.path.sample_size, 0.3);
    accept.at_most(name("forward_likelihood_ess"), ahead.usual.sample_size, 0.15);
    accept.at_least(name("forward_kl_likelihood_over_path"), ahead.usual.divergence / ahead.path.divergence, 2.5);

    const auto back = reverse_pair("usual start", Start::usual, seed);
    accept.at_least(name("reverse_path_ess_gain"), back.path.sample_size - back.usual.sample_size, 0.03);
    accept.at_least(name("reverse_path_ess"), back.path.sample_size, 0.88);
  }
  // Beside them, without a claim: the other start each, few points, and a start near the identity.
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    forward_pair("usual start", Start::usual, seed);
    reverse_pair("start of unit variance", Start::unit_variance, seed);
  }
  forward_pair("start of unit variance", Start::unit_variance, 1, 500);
  reverse_pair("start near the identity", Start::near_identity, 1);
  return accept.exit_code();
}
