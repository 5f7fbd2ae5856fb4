// The same groups with a label that only a half turn keeps: some beginnings lay the groups on each other the wrong way
// round. The smallest objective of six tells the right one, and the bound holds, and is tight, for all of them. They
// begin far from the identity: from about it the half turn was not found.
#include <algorithm>

#include "accept.h"
#include "fair_toy.h"

namespace {

/// Chosen by the objective on seeds of 100 and more.
diffeo::FairTraining half_turn(double gamma, uint64_t seed) {
  auto training = diffeo::testing::toy_training(gamma, seed);
  training.model.layers = 10;
  training.model.init_scale = 1;
  training.fit.steps = 2500;
  training.fit.learning_rate = 5e-3;
  training.objective.ramp_end = 1250;
  return training;
}

}  // namespace

int main() {
  using namespace diffeo::testing;
  Acceptance accept;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a line at a time, for those who wait
  std::vector<ToyResult> restarts;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    restarts.push_back(run_toy(half_turn(0.05, seed), hard_label));
    const auto& one = restarts.back();
    std::printf("restart %d: objective %.4f, delta %.4f, bound %.4f, adversary %.4f, task %.4f\n",
                static_cast<int>(seed), one.fitted.objective, one.certificate.delta(), one.certificate.accuracy,
                one.adversary, one.task);
  }
  const auto best = std::min_element(restarts.begin(), restarts.end(), [](const ToyResult& a, const ToyResult& b) {
    return a.fitted.objective < b.fitted.objective;
  });
  for (size_t i = 0; i < restarts.size(); ++i) {
    const auto& one = restarts[i];
    const auto name = [&](const char* claim) { return claim + std::string("_restart") + std::to_string(i); };
    accept.at_most(name("fair_hard_adversary_over_bound"), one.adversary - one.certificate.accuracy, 0.015);
    // Stuck: a half of the points is still apart.
    if (one.certificate.delta() > 0.3)
      accept.at_most(name("fair_hard_bound_over_adversary"), one.certificate.accuracy - one.adversary, 0.02);
  }
  accept.at_most("fair_hard_delta", best->certificate.delta(), 0.20);
  accept.at_least("fair_hard_task_accuracy", best->task, 0.97);
  const auto open = run_toy(half_turn(0, 0), hard_label);
  accept.at_most("fair_hard_bound_over_adversary_at_gamma_0", open.certificate.accuracy - open.adversary, 0.02);
  return accept.exit_code();
}
