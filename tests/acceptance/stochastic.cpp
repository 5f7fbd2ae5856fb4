// Path weights of stochastic layers without any network, in float64: the ratio of constants of the double well against
// quadrature, detailed balance pair by pair, the limit without steps, and how often error bars hold the truth.
#include <torch/types.h>

#include <cmath>
#include <numbers>

#include "accept.h"
#include "diffeo/flows/normal.h"
#include "diffeo/samplers/annealed.h"
#include "diffeo/samplers/importance.h"
#include "diffeo/samplers/targets/double_well.h"

namespace {

using namespace diffeo;

constexpr double right_share = 0.84430710;  // of the double well at x1 > 0, by quadrature

DistributionPtr standard_normal(int64_t features) {
  auto base = std::make_shared<Normal>(Normal::Options{.features = features});
  base->to(torch::kFloat64);
  return base;
}

FlowPtr annealed(const Json& kernel, const LogDensityPtr& target, int64_t features) {
  auto flow = annealing_flow(target, standard_normal(features), {.kernel = kernel});
  flow->to(torch::kFloat64);
  flow->eval();
  return flow;
}

struct NamedKernel {
  const char* name;
  Json spec;
};

const NamedKernel kernels[] = {
    {"metropolis", {{"type", "metropolis"}, {"steps", 10}, {"step_size", 0.25}}},
    {"langevin", {{"type", "langevin"}, {"steps", 10}, {"step_size", 0.01}}},
    {"mala", {{"type", "mala"}, {"steps", 10}, {"step_size", 0.02}}},
    {"hmc", {{"type", "hmc"}, {"steps", 4}, {"leapfrog", 5}, {"step_size", 0.15}}},
    {"underdamped", {{"type", "underdamped"}, {"steps", 10}, {"step_size", 0.1}, {"friction", 1.0}}}};

/// S1: ten blocks from N(0, I) to the double well. The unweighted share on the right is far from the truth, so that the
/// weights do the work.
void ratio_of_constants(diffeo::testing::Acceptance& accept, int64_t samples) {
  const auto target = std::make_shared<DoubleWell>(DoubleWell::Options{});
  const double truth = *target->log_normalizer();
  for (const auto& [name, spec] : kernels) {
    torch::manual_seed(1);
    const auto flow = annealed(spec, target, 2);
    const auto [x, log_weight] = draw_weighted(*flow, *target, samples);
    const auto z = log_mean_weight(log_weight);
    const auto right = (x.select(1, 0) > 0).to(torch::kFloat64);
    const double ratio = std::exp(z.value - truth), error = ratio * z.error;
    std::printf("%s: ratio %.4f +- %.4f, weighted share %.4f, unweighted %.4f, effective sample size %.2f\n", name,
                ratio, error, weighted_average(log_weight, right).value, right.mean().item<double>(),
                effective_sample_size(log_weight));
    accept.at_most(std::string("s1_ratio_") + name, std::abs(ratio - 1), std::max(0.02, 4 * error));
    accept.at_most(std::string("s1_share_") + name, std::abs(weighted_average(log_weight, right).value - right_share),
                   0.01);
  }
}

/// u = x^4/4 - x^2, with draws by the inverse of its distribution function on a grid.
Tensor draws_of_quartic(int64_t count) {
  const auto grid = torch::linspace(-4, 4, 400001, torch::kFloat64);
  auto sums = (-(grid.square().square() / 4 - grid.square())).exp().cumsum(0);
  sums = sums / sums[-1];
  const auto uniform = torch::rand({count}, torch::kFloat64);
  const auto above = torch::searchsorted(sums, uniform).clamp(1, grid.numel() - 1), below = above - 1;
  const auto low = sums.index_select(0, below), high = sums.index_select(0, above);
  const auto part = ((uniform - low) / (high - low).clamp_min(1e-300)).clamp(0, 1);
  return (grid.index_select(0, below) + part * (grid[1] - grid[0])).unsqueeze(-1);
}

/// S3: pairs (x, y), x from the kernel's density. Kernels that accept or reject are in balance with it pair by pair, so
/// that x and y may be exchanged.
void reversibility(diffeo::testing::Acceptance& accept) {
  const auto target = std::make_shared<DoubleWell>(DoubleWell::Options{.features = 1, .a = 0, .b = -1, .c = 0.25});
  for (const auto& [name, spec] : kernels) {
    torch::manual_seed(2);
    auto one = spec;
    one["steps"] = 3;
    if (one["type"] == "langevin") one["step_size"] = 0.05;
    const auto kernel = build_kernel(one, target);
    kernel->to(torch::kFloat64);
    kernel->eval();
    torch::NoGradGuard no_grad;
    const auto x = draws_of_quartic(400000);
    for (const bool forward : {true, false}) {
      const auto [y, log_det] = forward ? kernel->forward(x) : kernel->inverse(x);
      const auto gap = log_det + target->log_prob(y) - target->log_prob(x);
      const auto weight = gap.exp();
      const double off = std::abs(weight.mean().item<double>() - 1),
                   error = weight.std().item<double>() / std::sqrt(static_cast<double>(weight.numel()));
      const bool balanced = one["type"] != "langevin" && one["type"] != "underdamped";
      if (balanced) {
        const auto odd = x.square().squeeze(-1) * y.pow(4).squeeze(-1) - y.square().squeeze(-1) * x.pow(4).squeeze(-1);
        accept.at_most(c10::str("s3_exchange_", forward ? "forward_" : "inverse_", name),
                       std::abs(odd.mean().item<double>()),
                       4 * odd.std().item<double>() / std::sqrt(static_cast<double>(odd.numel())));
      }
      accept.at_most(c10::str("s3_", forward ? "forward_" : "inverse_", name),
                     balanced ? gap.abs().max().item<double>() : off, balanced ? 1e-12 : 4 * error);
    }
  }
}

/// S4: with no steps the flow is the plain one, to the bit.
void deterministic_limit(diffeo::testing::Acceptance& accept) {
  const auto target = std::make_shared<DoubleWell>(DoubleWell::Options{});
  Json plain = Json::array(), mixed = Json::array();
  for (int i = 0; i < 4; ++i) {
    const Json coupling = {{"type", "coupling"}, {"features", 2}, {"flip", i % 2 == 1}, {"map", {{"type", "affine"}}}};
    plain.push_back(coupling);
    mixed.push_back({{"type", i % 2 ? "langevin" : "hmc"}, {"density", target->spec()}, {"steps", 0}});
    mixed.push_back(coupling);
  }
  std::vector<Tensor> weights;
  for (const auto& layers : {plain, mixed}) {
    torch::manual_seed(3);
    const auto flow =
        build_flow({{"type", "flow"}, {"layers", layers}, {"base", {{"type", "normal"}, {"features", 2}}}});
    flow->to(torch::kFloat64);
    torch::manual_seed(4);
    weights.push_back(draw_weighted(*flow, *target, 20000).log_weight);
  }
  accept.at_most("s4_bits_that_differ", (weights[0] != weights[1]).sum().item<double>(), 0);
}

/// The truth is within one error in 68 of 100 runs of AIS.
void coverage(diffeo::testing::Acceptance& accept, int runs) {
  const auto target = std::make_shared<DoubleWell>(DoubleWell::Options{});
  const double truth = *target->log_normalizer(), difference = std::log(right_share / (1 - right_share));
  torch::manual_seed(5);
  const auto flow = annealed({{"type", "hmc"}, {"steps", 2}, {"leapfrog", 3}, {"step_size", 0.2}}, target, 2);
  const int64_t each = 1000;
  const auto all = draw_weighted(*flow, *target, runs * each);
  int z_held = 0, share_held = 0, difference_held = 0, bootstrap_held = 0;
  for (int run = 0; run < runs; ++run) {
    const auto log_weight = all.log_weight.narrow(0, run * each, each);
    const auto right = all.x.narrow(0, run * each, each).select(1, 0) > 0;
    const auto holds = [](const Estimate& estimate, double value) {
      return std::abs(estimate.value - value) <= estimate.error;
    };
    z_held += holds(log_mean_weight(log_weight), truth);
    share_held += holds(weighted_average(log_weight, right), right_share);
    difference_held += holds(free_energy_difference(log_weight, right.logical_not(), right), difference);
    bootstrap_held +=
        holds(bootstrap(each, 60,
                        [&](const Tensor& rows) { return log_mean_weight(log_weight.index_select(0, rows)).value; }),
              truth);
  }
  const auto claim = [&](const std::string& name, int held) {
    const double share = static_cast<double>(held) / runs;
    accept.at_least("coverage_" + name + "_low", share, 0.58);
    accept.at_most("coverage_" + name + "_high", share, 0.78);
  };
  claim("log_z", z_held);
  claim("share", share_held);
  claim("free_energy", difference_held);
  claim("log_z_bootstrap", bootstrap_held);
}

}  // namespace

int main() {
  diffeo::testing::Acceptance accept;
  ratio_of_constants(accept, 200000);
  reversibility(accept);
  deterministic_limit(accept);
  coverage(accept, 300);
  return accept.exit_code();
}
