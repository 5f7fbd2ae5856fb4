// Two densities known in closed form: the KL divergence of what a flow learns from samples of them, in nats, is bounded
// below by 0 and above by what the architecture can do. A log_det too large makes it negative, one too small large.
#include <torch/types.h>

#include <cmath>
#include <numbers>

#include "accept.h"
#include "diffeo/trainers/fit.h"

namespace {

using namespace diffeo;

constexpr double pi = std::numbers::pi;

struct Target {
  Tensor (*sample)(int64_t rows);
  Tensor (*log_prob)(const Tensor& x);
};

/// Eight Gaussians of deviation 0.2 on a circle of radius 2.
Tensor ring_centres() {
  const auto angle = torch::arange(8, torch::kFloat64) * (pi / 4);
  return 2 * torch::stack({angle.cos(), angle.sin()}, -1);
}
const Target ring{
    [](int64_t rows) {
      return ring_centres().index_select(0, torch::randint(8, {rows})) + 0.2 * torch::randn({rows, 2}, torch::kFloat64);
    },
    [](const Tensor& x) {
      const auto square = (x.unsqueeze(1) - ring_centres()).square().sum(-1) / 0.04;
      return (-0.5 * square).logsumexp(-1) - std::log(8 * 2 * pi * 0.04);
    }};

/// x1 normal of deviation 2, x2 = sin(2 x1) + 0.3 e.
const Target sine{[](int64_t rows) {
                    const auto first = 2 * torch::randn({rows}, torch::kFloat64);
                    return torch::stack({first, (2 * first).sin() + 0.3 * torch::randn({rows}, torch::kFloat64)}, -1);
                  },
                  [](const Tensor& x) {
                    const auto first = x.select(-1, 0), rest = (x.select(-1, 1) - (2 * first).sin()) / 0.3;
                    return -0.5 * ((first / 2).square() + rest.square()) - std::log(2 * pi * 2 * 0.3);
                  }};

Json couplings(int count, const Json& map, double first_scale) {
  Json layers = Json::array();
  layers.push_back({{"type", "standardize"}, {"features", 2}, {"shift", {0.0, 0.0}}, {"scale", {first_scale, 1.0}}});
  for (int i = 0; i < count; ++i)
    layers.push_back({{"type", "coupling"}, {"features", 2}, {"flip", i % 2 == 1}, {"map", map}});
  return {{"type", "flow"}, {"layers", layers}, {"base", {{"type", "normal"}, {"features", 2}}}};
}

double divergence(const Target& target, const Json& spec, uint64_t seed) {
  torch::manual_seed(seed);
  auto flow = build_flow(spec);
  MaximumLikelihood objective(flow);
  const auto data = in_memory({.x = target.sample(200000).to(torch::kFloat32)});
  fit(objective, *data, nullptr,
      {.batch_size = 512, .steps = 3000, .learning_rate = 2e-3, .checkpoint_seconds = 0, .seed = seed});
  torch::NoGradGuard no_grad;
  flow->eval();
  flow->to(torch::kFloat64);
  const auto x = target.sample(20000);
  return (target.log_prob(x) - flow->log_prob(x)).mean().item<double>();
}

}  // namespace

int main() {
  const Json affine = {{"type", "affine"}}, spline = {{"type", "rq_spline"}, {"bins", 12}, {"bound", 4.0}};
  diffeo::testing::Acceptance accept;
  for (uint64_t seed : {1, 2, 3}) {
    const auto name = [&](const char* claim) { return claim + std::string("_seed") + std::to_string(seed); };
    const double ring_affine = divergence(ring, couplings(8, affine, 1), seed),
                 ring_spline = divergence(ring, couplings(4, spline, 1), seed);
    accept.at_most(name("ring_affine8_kl"), ring_affine, 0.5);
    accept.at_most(name("ring_spline4_kl"), ring_spline, 0.03);
    accept.at_least(name("ring_spline4_kl_not_negative"), ring_spline, -0.01);
    accept.at_most(name("ring_spline_over_affine"), ring_spline / ring_affine, 0.2);
    accept.at_most(name("sine_affine2_kl"), divergence(sine, couplings(2, affine, 1), seed), 0.06);
    accept.at_most(name("sine_spline2_kl"), divergence(sine, couplings(2, spline, 2), seed), 0.03);
  }
  return accept.exit_code();
}
