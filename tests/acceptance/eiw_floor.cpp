// Which half of the channels is factored out can cost bits that nothing later gets back: channels that are normal leave
// the kept half nothing to do, and those that are not are taken for normal ones. The floor of the bad split is known
// exactly, 1/2 log2(2 pi e); only another order goes below it.
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "accept.h"
#include "diffeo/layers/shuffle/eiw_shuffle.h"
#include "diffeo/trainers/fit.h"

namespace {

using namespace diffeo;

/// Pixels of 8 channels: 0 to 3 standard normal, 4 to 7 two rings of eight Gaussians, of variance 1. (rows, 8).
Tensor rings_last(int64_t rows) {
  const auto ring = [&] {
    const auto angle = torch::randint(8, {rows}).to(torch::kFloat32) * (std::numbers::pi / 4);
    const auto centre = 2 * torch::stack({angle.cos(), angle.sin()}, -1);
    return (centre + 0.2 * torch::randn({rows, 2})) / std::sqrt(2.04);
  };
  return torch::cat({torch::randn({rows, 4}), ring(), ring()}, 1);
}

/// One transition, and ten couplings for the half that is kept.
FlowPtr flow_with(const std::string& order) {
  Json inner = {{{"type", "inverse"}, {"layer", {{"type", "image"}, {"shape", {4, 1, 1}}}}}};
  for (int i = 0; i < 10; ++i)
    inner.push_back({{"type", "coupling"},
                     {"features", 4},
                     {"mask", i % 4 < 2 ? "half" : "alternating"},
                     {"flip", i % 2 == 1},
                     {"map", {{"type", "affine"}, {"cap", 2.0}}}});
  return build_flow({{"layers",
                      {{{"type", "image"}, {"shape", {8, 1, 1}}},
                       {{"type", "eiw_shuffle"}, {"shape", {8, 1, 1}}, {"order", order}},
                       {{"type", "factor_out"}, {"shape", {8, 1, 1}}, {"layers", inner}}}},
                     {"base", {{"type", "normal"}, {"features", 8}}}});
}

EiwShuffle& shuffle_of(Flow& flow) {
  for (const auto& module : flow.modules())
    if (auto* shuffle = dynamic_cast<EiwShuffle*>(module.get())) return *shuffle;
  throw Error("the flow has no shuffle");
}

/// Makes the solver prefer the last four channels, for good: the penalty is switched off.
void prefer_rings(Flow& flow) {
  torch::NoGradGuard no_grad;
  auto& shuffle = shuffle_of(flow);
  shuffle.named_parameters()["solver_hidden"].fill_(0.125);
  shuffle.named_parameters()["solver_out"].narrow(0, 4, 4).fill_(0.5);
}

double bits_per_dimension(const std::string& order) {
  torch::manual_seed(3);
  auto flow = flow_with(order);
  if (order == "eiw") prefer_rings(*flow);
  MaximumLikelihood objective(flow, {.penalty = 0});
  const auto data = in_memory({.x = rings_last(100000)});
  fit(objective, *data, nullptr,
      {.batch_size = 512, .steps = 3000, .learning_rate = 2e-3, .checkpoint_seconds = 0, .seed = 3});
  torch::NoGradGuard no_grad;
  return -flow->log_prob(rings_last(50000)).mean().item<double>() / (8 * std::log(2.0));
}

/// How often, over random placements, the channels of largest negentropy in one batch are the four of the rings.
double right_halves(int seeds) {
  double right = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    torch::manual_seed(seed);
    const auto placed = torch::randperm(8);
    EiwShuffle shuffle({.shape = {8, 1, 1}, .order = "negentropy"});
    shuffle.forward(rings_last(1024).index_select(1, placed).view({-1, 8, 1, 1}));
    const auto kept = placed.index_select(0, shuffle.order().narrow(0, 0, 4));
    right += (kept >= 4).all().item<bool>() ? 1 : 0;
  }
  return right;
}

}  // namespace

int main() {
  diffeo::testing::Acceptance accept;
  accept.at_least("eiw_negentropy_right_of_20", right_halves(20), 20);
  const double bad = bits_per_dimension("static"), solved = bits_per_dimension("eiw"),
               measured = bits_per_dimension("negentropy");
  accept.at_least("eiw_bad_split_is_at_its_floor", bad, 2.03);
  accept.at_most("eiw_bad_split_reaches_its_floor", bad, 2.07);
  accept.at_most("eiw_good_split_by_weights_set", solved, 1.65);
  accept.at_most("eiw_good_split_by_negentropy", measured, 1.65);
  accept.at_least("eiw_recovered_bits", bad - std::max(solved, measured), 0.38);
  return accept.exit_code();
}
