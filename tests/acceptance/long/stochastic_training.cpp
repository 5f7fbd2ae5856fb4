// S2: couplings with and without stochastic layers, trained on the double well as in experiment 1 of Wu et al. 2020,
// three seeds. What counts is the free-energy profile of the reweighted samples on 30 bins of [-2.4, 2.4], from 20 sets
// of 100 000, measured as the paper's notebook does, in kT: the bias is how far the mean profile is off, on average
// over the bins with the lowest one at 0; the scatter the mean over the bins of the deviation between sets.
#include <torch/types.h>

#include <cmath>

#include "accept.h"
#include "diffeo/flows/recipes.h"
#include "diffeo/layers/base/random.h"
#include "diffeo/samplers/chains.h"
#include "diffeo/samplers/importance.h"
#include "diffeo/samplers/targets/double_well.h"
#include "diffeo/samplers/weighted.h"
#include "diffeo/trainers/fit.h"
#include "diffeo/trainers/path_kl.h"

namespace {

using namespace diffeo;

constexpr int64_t bins = 30, sets = 20, set_size = 100000;
constexpr double reach = 2.4, right_share = 0.84430710;

const std::shared_ptr<DoubleWell> target = std::make_shared<DoubleWell>(DoubleWell::Options{});

/// Draws of both wells in their true shares: a long chain whose steps cross the barrier, every tenth state.
Tensor data(uint64_t seed) {
  torch::manual_seed(seed);
  const auto kernel =
      build_kernel({{"type", "metropolis"}, {"density", target->spec()}, {"steps", 10}, {"step_size", 1.5}}, target);
  return run_chains(*kernel, torch::randn({100, 2}), {.draws = 100, .discard = 100}).flatten(0, 1);
}

/// The couplings alone, or with layers between them: six affine couplings, three pairs.
FlowPtr flow_with(bool random) {
  auto spec = recipe("snf", {.features = 2, .layers = 6, .width = 64, .depth = 2, .density = "double_well"});
  if (!random) {
    Json couplings = Json::array();
    for (const auto& layer : spec["layers"])
      if (layer["type"] == "coupling") couplings.push_back(layer);
    spec["layers"] = couplings;
  }
  return build_flow(spec);
}

/// 300 steps on data, then 300 on data and target.
void train(const FlowPtr& flow, const Tensor& rows, uint64_t seed) {
  for (const double mixture : {1.0, 0.5}) {
    PathKl objective(flow, target, {.mixture = mixture});
    fit(objective, *in_memory({.x = rows}), nullptr,
        {.batch_size = 128,
         .steps = 300,
         .learning_rate = 5e-3,
         .schedule = "constant",
         .checkpoint_seconds = 0,
         .seed = seed});
  }
  flow->eval();
  flow->to(torch::kFloat64);
}

/// -log of the share of each bin, with the mean of the profile taken off.
Tensor profile_of(const Tensor& share) {
  // A bin that no sample fell into is taken to hold one in ten million.
  const auto profile = -(share / share.sum()).clamp_min(1e-7).log();
  return profile - profile.mean();
}

Tensor exact_profile() {
  const auto fine = (torch::arange(bins * 200, torch::kFloat64) + 0.5) * (2 * reach / (bins * 200)) - reach;
  return profile_of((-Well{}.potential(fine)).exp().view({bins, 200}).sum(1));
}

struct Measured {
  double bias, scatter, total, log_z_error, right, effective;
};

Measured measure(Flow& flow, uint64_t seed) {
  torch::manual_seed(seed);
  std::vector<Tensor> profiles, weights, points;
  for (int64_t set = 0; set < sets; ++set) {
    const auto [x, log_weight] = draw_weighted(flow, *target, set_size);
    const auto first = x.select(1, 0);
    const auto bin = ((first + reach) * (bins / (2 * reach))).floor();
    const auto inside = (bin >= 0) & (bin < bins);
    const auto weight = (log_weight - log_weight.max()).exp() * inside;
    const auto share =
        torch::zeros({bins}, torch::kFloat64).index_add(0, bin.clamp(0, bins - 1).to(torch::kLong), weight);
    profiles.push_back(profile_of(share));
    weights.push_back(log_weight);
    points.push_back(first);
  }
  const auto all = torch::stack(profiles), exact = exact_profile();
  const auto mean = all.mean(0);
  const double bias = std::abs((mean - mean.min() - (exact - exact.min())).mean().item<double>()),
               scatter = all.std(0, /*unbiased=*/false).mean().item<double>();
  const auto log_weight = torch::cat(weights);
  const auto right = (torch::cat(points) > 0).to(torch::kFloat64);
  return {bias,
          scatter,
          std::hypot(bias, scatter),
          std::abs(log_mean_weight(log_weight).value - *target->log_normalizer()),
          weighted_average(log_weight, right).value,
          effective_sample_size(log_weight)};
}

}  // namespace

int main() {
  diffeo::testing::Acceptance accept;
  double plain_total = 0, stochastic_total = 0;
  for (uint64_t seed : {1, 2, 3}) {
    const auto rows = data(100 + seed);
    for (const bool random : {false, true}) {
      torch::manual_seed(seed);
      const auto flow = flow_with(random);
      train(flow, rows, seed);
      const auto found = measure(*flow, 200 + seed);
      const auto name = std::string(random ? "stochastic" : "plain") + "_seed" + std::to_string(seed);
      std::printf("%s: bias %.3f, scatter %.3f, total %.3f kT, log Z off by %.4f, right %.4f, effective %.2f\n",
                  name.c_str(), found.bias, found.scatter, found.total, found.log_z_error, found.right,
                  found.effective);
      (random ? stochastic_total : plain_total) += found.total / 3;
      accept.at_most("s2_log_z_" + name, found.log_z_error, 0.05);
      accept.at_most("s2_right_share_" + name, std::abs(found.right - right_share), 0.02);
      if (!random) continue;
      accept.at_most("s2_total_" + name, found.total, 0.45);
      accept.at_most("s2_bias_" + name, found.bias, 0.12);
    }
  }
  std::printf("mean total: stochastic %.2f, plain %.2f kT\n", stochastic_total, plain_total);
  accept.at_most("s2_stochastic_over_plain_total", stochastic_total / plain_total, 1);
  return accept.exit_code();
}
