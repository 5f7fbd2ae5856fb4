// Groups whose rows never meet, and a label that a shift keeps: encoders trained on a little divergence hide the group
// from every adversary and tell the label; without it the group is plain.
#include "accept.h"
#include "fair_toy.h"

int main() {
  using namespace diffeo::testing;
  Acceptance accept;
  for (uint64_t seed : {0, 1, 2}) {
    const auto name = [&](const char* claim) { return claim + std::string("_seed") + std::to_string(seed); };
    const auto fair = run_toy(toy_training(0.1, seed), easy_label), open = run_toy(toy_training(0, seed), easy_label);
    accept.at_most(name("fair_easy_delta"), fair.certificate.delta(), 0.06);
    accept.at_least(name("fair_easy_task_accuracy"), fair.task, 0.98);
    accept.at_most(name("fair_easy_adversary_over_bound"), fair.adversary - fair.certificate.accuracy, 0.015);
    accept.at_least(name("fair_easy_delta_at_gamma_0"), open.certificate.delta(), 0.9);
    accept.at_most(name("fair_easy_adversary_over_bound_at_gamma_0"), open.adversary - open.certificate.accuracy,
                   0.015);
  }
  return accept.exit_code();
}
