// Rows in blocks of very different sizes, equally correlated inside of a block (Kirchler, Lippert, Kloft 2023): a flow
// trained with the correlated base finds the density of a new, unrelated row; the same flow trained as if the rows were
// independent does not. Balanced blocks would show little: there, weighing rows by their information changes nothing.
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <cmath>
#include <numbers>

#include "accept.h"
#include "diffeo/flows/likelihood.h"
#include "diffeo/trainers/dependent_likelihood.h"
#include "diffeo/trainers/fit.h"

namespace {

using namespace diffeo;
using diffeo::testing::Acceptance;

constexpr double rho = 0.9;
constexpr int64_t large_blocks = 4, block_rows = 250, singletons = 500, rows = large_blocks * block_rows + singletons;

Tensor block_numbers() {
  return torch::cat({torch::arange(large_blocks).repeat_interleave(block_rows),
                     torch::arange(large_blocks, large_blocks + singletons)});
}

/// Standard normal (n, D) with correlation rho inside of blocks.
Tensor correlated(int64_t features) {
  const auto shared = torch::randn({large_blocks + singletons, features}, torch::kFloat64);
  return std::sqrt(rho) * shared.index_select(0, block_numbers()) +
         std::sqrt(1 - rho) * torch::randn({rows, features}, torch::kFloat64);
}

/// x1 = u1, x2 = u1^2 / 2 - 1 + u2 / e.
Tensor crescent(const Tensor& u) {
  const auto first = u.select(1, 0);
  return torch::stack({first, 0.5 * first.square() - 1 + std::exp(-1.0) * u.select(1, 1)}, 1);
}

double negative_log_likelihood(Flow& flow, const Tensor& x) {
  LogLikelihoods all;
  const auto data = in_memory({.x = x});
  each_log_prob(flow, *data->in_order(2000), [&](const Tensor& log_prob, const Batch&) { all.add(log_prob); });
  return -all.mean();
}

struct Fitted {
  double loss, strength;
};

Fitted fitted(const Tensor& train, const Tensor& valid, const Tensor& test, const DependentLikelihood::Options& how,
              uint64_t seed) {
  torch::manual_seed(seed);
  Json layers = Json::array();
  for (int i = 0; i < 4; ++i)
    layers.push_back({{"type", "coupling"},
                      {"features", 2},
                      {"flip", i % 2 == 1},
                      {"map", {{"type", "rq_spline"}, {"bins", 16}, {"bound", 8.0}}},
                      {"net", {{"width", 64}, {"depth", 2}, {"activation", "silu"}}}});
  const auto flow = build_flow({{"layers", layers}, {"base", {{"type", "normal"}, {"features", 2}}}});
  const auto dependence = std::make_shared<GroupedRows>(block_numbers());
  const Batch everything{.x = train, .context = {}, .weight = {}, .label = torch::arange(rows)};
  DependentLikelihood objective(flow, how, dependence, everything);
  const auto validation = in_memory({.x = valid});
  fit(objective, *in_memory(everything), validation.get(),
      {.batch_size = rows,
       .steps = 600,
       .optimizer = "adam",
       .learning_rate = 5e-3,
       .schedule = "constant",
       .weight_decay = 1e-3,
       .clip_norm = 1,
       .evaluate_every = 20,
       .checkpoint_seconds = 1e9,
       .seed = seed});
  return {negative_log_likelihood(*flow, test), objective.strength()};
}

/// The mean of a normal: by the dependent likelihood it is that of generalised least squares, and its variance over
/// replicates is known, as is that of the plain mean.
void linear_version(Acceptance& accept) {
  const double large = block_rows, factor = 1 + (large - 1) * rho;
  const double weights = large_blocks * large / factor + singletons, n = rows;
  const double variance = 1 / weights, naive_variance = (large_blocks * large * factor + singletons) / (n * n);
  constexpr int replicates = 400;
  const GroupedRows dependence(block_numbers());
  double squares = 0, naive_squares = 0;
  for (int i = 0; i < replicates; ++i) {
    const auto x = correlated(1);
    // The likelihood is a parabola in the mean: its vertex by one step of Newton.
    auto mean = torch::zeros({}, torch::TensorOptions(torch::kFloat64).requires_grad(true));
    const auto strength = torch::full({}, rho, torch::kFloat64);
    const auto value = dependence.estimate(x - mean, torch::arange(rows))(strength);
    const auto slope = torch::autograd::grad({value}, {mean}, {}, true, true)[0];
    const auto curvature = torch::autograd::grad({slope}, {mean})[0];
    squares += std::pow((-slope / curvature).item<double>(), 2) / replicates;
    naive_squares += std::pow(x.mean().item<double>(), 2) / replicates;
  }
  std::printf("variance of the mean: %.6f (theory %.6f), of the plain mean %.5f (theory %.5f)\n", squares, variance,
              naive_squares, naive_variance);
  accept.at_most("dependent_linear_variance_relative_error", std::abs(squares / variance - 1), 0.25);
  accept.at_most("dependent_linear_plain_variance_relative_error", std::abs(naive_squares / naive_variance - 1), 0.25);
}

}  // namespace

int main() {
  Acceptance accept;
  torch::manual_seed(11);
  linear_version(accept);
  for (uint64_t seed : {0, 1, 2}) {
    torch::manual_seed(100 + seed);
    const auto train = crescent(correlated(2)).to(torch::kFloat32);
    const auto fresh = [](int64_t count) { return torch::randn({count, 2}, torch::kFloat64); };
    const auto valid = crescent(fresh(2000)).to(torch::kFloat32);
    const auto u = fresh(10000);
    const auto test = crescent(u).to(torch::kFloat32);
    // log|det dx/du| = -1.
    const double oracle = (0.5 * u.square().sum(1)).mean().item<double>() + std::log(2 * std::numbers::pi) - 1;
    const auto plain = fitted(train, valid, test, {.strength = 0, .learn = "no"}, seed);
    const auto dependent = fitted(train, valid, test, {.strength = rho, .learn = "no"}, seed);
    const auto turns = fitted(train, valid, test, {.strength = 0.5, .learn = "turns"}, seed);
    const auto joint = fitted(train, valid, test, {.strength = 0.5, .learn = "joint"}, seed);
    std::printf(
        "seed %d: oracle %.3f, independent %.3f, rho 0.9 %.3f, in turns %.3f (rho %.3f), jointly %.3f (rho %.3f)\n",
        static_cast<int>(seed), oracle, plain.loss, dependent.loss, turns.loss, turns.strength, joint.loss,
        joint.strength);
    const auto name = [&](const char* claim) { return c10::str("dependent_blocks_", claim, "_seed", seed); };
    accept.at_most(name("over_oracle"), dependent.loss - oracle, 0.10);
    accept.at_least(name("gain"), plain.loss - dependent.loss, 0.15);
    accept.at_most(name("turns_over_oracle"), turns.loss - oracle, 0.15);
    accept.at_most(name("joint_over_oracle"), joint.loss - oracle, 0.15);
  }
  return accept.exit_code();
}
