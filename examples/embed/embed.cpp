// A toy simulation: an independence Metropolis chain on a double well that proposes from a trained flow.
#include <diffeo/flows/model.h>
#include <torch/types.h>

#include <cmath>
#include <cstdio>

int main(int argc, char** argv) try {
  if (argc != 2) return std::fprintf(stderr, "usage: embed model.h5\n"), 2;
  const auto flow = diffeo::load_flow(argv[1]);
  torch::NoGradGuard no_grad;
  torch::manual_seed(0);
  const auto energy = [](const torch::Tensor& x) { return 4 * (x.square() - 1).square().sum(-1); };  // (n, D) -> (n)

  auto [state, log_q] = flow->draw({256});  // 256 chains
  auto weight = -energy(state) - log_q;
  double accepted = 0;
  for (int step = 0; step < 200; ++step) {
    const auto [proposal, proposal_log_q] = flow->draw({256});
    const auto proposal_weight = -energy(proposal) - proposal_log_q;
    const auto take = torch::rand_like(weight).log() < proposal_weight - weight;
    state = torch::where(take.unsqueeze(-1), proposal, state);
    weight = torch::where(take, proposal_weight, weight);
    accepted += take.to(torch::kFloat64).mean().item<double>() / 200;
  }
  const auto again = flow->log_prob(state);
  if (!again.isfinite().all().item<bool>()) return std::fprintf(stderr, "a state has no density\n"), 1;
  std::printf("accepted %.3f  mean energy %.3f  mean log q %.3f nats\n", accepted, energy(state).mean().item<double>(),
              again.mean().item<double>());
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
