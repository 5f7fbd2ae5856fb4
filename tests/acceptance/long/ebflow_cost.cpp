// What a training step of a flow of matrices costs, by maximum likelihood with log-determinants and by score matching
// without them: the whole step as fit makes it, on one thread, in CPU time. The methods take turns of several steps in
// a row, as training makes them, and the first of each turn, which finds the caches full of another method's weights,
// does not count. All of them multiply by the same kernels; maximum likelihood factorises each matrix once, for the
// value and for the gradient.
#include <ATen/Parallel.h>
#include <torch/types.h>

#include <algorithm>
#include <map>

#include "accept.h"
#include "diffeo/flows/recipes.h"
#include "diffeo/trainers/objective.h"
#include "diffeo/trainers/optimizer.h"

namespace {

using namespace diffeo;

/// A flow with its objective and its optimiser.
class Method {
 public:
  Method(const Json& spec, int64_t features) {
    auto flow = build_flow(recipe("ebflow", {.features = features}));
    {
      torch::NoGradGuard no_grad;
      for (auto& parameter : flow->parameters()) parameter.add_(torch::randn_like(parameter), 0.01);
    }
    objective_ = build_objective(spec, flow);
    optimizer_ = std::make_unique<Optimizer>(objective_->parameters(), Optimizer::Options{.clip_norm = 5});
  }
  /// Seconds of CPU time of one step.
  double step(const Tensor& x) {
    const double begin = diffeo::testing::cpu_seconds();
    optimizer_->zero_grad();
    objective_->loss({.x = x}).backward();
    optimizer_->step(1e-4, optimizer_->grad_norm().item<double>());
    return diffeo::testing::cpu_seconds() - begin;
  }

 private:
  ObjectivePtr objective_;
  std::unique_ptr<Optimizer> optimizer_;
};

const std::vector<std::pair<std::string, Json>> methods{
    {"ml", {{"type", "maximum_likelihood"}}},
    {"ssm", {{"type", "sliced_score_matching"}}},
    {"dsm", {{"type", "denoising_score_matching"}, {"sigma", 0.5}}},
    {"fd", {{"type", "finite_difference_score_matching"}}},
};

constexpr int steps_of_a_turn = 4;

/// The median seconds of a step of each method.
std::map<std::string, double> seconds_of(int64_t features, int64_t rows, int rounds) {
  torch::manual_seed(3);
  std::vector<Method> running;
  for (const auto& [name, spec] : methods) running.emplace_back(spec, features);
  const auto x = torch::randn({rows, features});
  std::map<std::string, std::vector<double>> seconds;
  for (int round = -1; round < rounds; ++round)
    for (size_t i = 0; i < methods.size(); ++i) {
      running[i].step(x);
      for (int step = 0; step < steps_of_a_turn; ++step) {
        const double taken = running[i].step(x);
        if (round >= 0) seconds[methods[i].first].push_back(taken);
      }
    }
  std::map<std::string, double> medians;
  std::printf("D = %4d, B = %3d, ms:", static_cast<int>(features), static_cast<int>(rows));
  for (auto& [name, all] : seconds) {
    std::sort(all.begin(), all.end());
    medians[name] = all[all.size() / 2];
    std::printf("  %s %.2f", name.c_str(), 1e3 * medians[name]);
  }
  std::printf("\n");
  return medians;
}

}  // namespace

int main() {
  at::set_num_threads(1);
  diffeo::testing::Acceptance accept;
  auto full = seconds_of(784, 100, 8), few = seconds_of(784, 16, 8), small = seconds_of(256, 100, 12),
       large = seconds_of(1024, 100, 4);
  accept.at_least("ebflow_784x100_ml_over_dsm", full["ml"] / full["dsm"], 4);
  accept.at_least("ebflow_784x100_ml_over_fd", full["ml"] / full["fd"], 8);
  accept.at_least("ebflow_784x16_ml_over_dsm", few["ml"] / few["dsm"], 8);
  accept.at_least("ebflow_ratio_grows_from_256_to_1024", large["ml"] / large["dsm"] / (small["ml"] / small["dsm"]), 1);
  return accept.exit_code();
}
