// Denoising score matching of a coupling flow on a noisy sine in two dimensions, whose density is an integral over one.
// Couplings keep log-determinants in the energy; matrices and ActNorm between them do not.
//
//   accept_ebflow_sine [STEPS]
#include <ATen/Parallel.h>
#include <torch/types.h>

#include <cmath>
#include <cstdlib>
#include <numbers>

#include "accept.h"
#include "diffeo/trainers/fit.h"

namespace {

using namespace diffeo;

constexpr double noise = 0.375;  // of the matching, in units of the data
constexpr double unit = 3;       // the flow sees data in this unit

/// 4 (t, sin 3t + n / 4), t uniform on [-2, 2], n normal.
Tensor clean(int64_t rows) {
  const auto t = 4 * torch::rand({rows}, torch::kFloat64) - 2;
  return torch::stack({4 * t, 4 * (3 * t).sin() + torch::randn({rows}, torch::kFloat64)}, 1);
}

/// Log density of clean points with noise, by the trapezoidal rule over t.
Tensor log_density(const Tensor& x) {
  constexpr int64_t nodes = 4001;
  const auto t = torch::linspace(-2, 2, nodes, torch::kFloat64);
  auto log_weight = torch::full({nodes}, -std::log(static_cast<double>(nodes - 1)), torch::kFloat64);
  for (const int64_t end : {int64_t{0}, nodes - 1}) log_weight[end] -= std::log(2.0);
  const auto log_normal = [](const Tensor& from, double variance) {
    return -0.5 * from.square() / variance - 0.5 * std::log(2 * std::numbers::pi * variance);
  };
  std::vector<Tensor> all;
  for (const auto& some : x.split(500))
    all.push_back((log_normal(some.select(1, 0).unsqueeze(1) - 4 * t, noise * noise) +
                   log_normal(some.select(1, 1).unsqueeze(1) - 4 * (3 * t).sin(), 1 + noise * noise) + log_weight)
                      .logsumexp(1));
  return torch::cat(all);
}

Json spec() {
  const std::vector<double> shift{0, 0}, scale{unit, unit};
  Json layers = Json::array();
  layers.push_back({{"type", "standardize"}, {"features", 2}, {"shift", shift}, {"scale", scale}});
  for (int i = 0; i < 10; ++i) {
    layers.push_back({{"type", "dense_linear"}, {"features", 2}, {"start", "rotation"}});
    layers.push_back({{"type", "coupling"},
                      {"features", 2},
                      {"flip", i % 2 == 1},
                      {"net", {{"width", 64}, {"depth", 2}, {"activation", "silu"}}}});
    layers.push_back({{"type", "actnorm"}, {"features", 2}});
  }
  layers.push_back({{"type", "dense_linear"}, {"features", 2}, {"start", "rotation"}});
  return {{"type", "flow"}, {"layers", layers}, {"base", {{"type", "normal"}, {"features", 2}}}};
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const int64_t steps = argc > 1 ? std::atoll(argv[1]) : 4000;
  torch::manual_seed(1);
  const auto rows = clean(50000).to(torch::kFloat32);
  auto test = clean(20000);
  test = test + noise * torch::randn_like(test);
  const auto exact = log_density(test);
  std::printf("entropy of the noisy sine %.3f nats\n", -exact.mean().item<double>());
  const auto flow = build_flow(spec());
  const auto objective = build_objective({{"type", "denoising_score_matching"}, {"sigma", noise / unit}}, flow);
  fit(*objective, *in_memory({.x = rows}), nullptr,
      {.batch_size = 512, .steps = steps, .learning_rate = 1e-3, .average = 0.999, .checkpoint_seconds = 0, .seed = 2});
  torch::NoGradGuard no_grad;
  flow->eval();
  flow->to(torch::kFloat64);
  diffeo::testing::Acceptance accept;
  accept.at_most("ebflow_sine_dsm_kl", (exact - flow->log_prob(test)).mean().item<double>(), 0.35);
  return accept.exit_code();
}
