#include "diffeo/layers/stochastic/metropolis.h"

#include <torch/types.h>

#include "diffeo/layers/base/registry.h"

namespace diffeo {

Metropolis::Metropolis(const Options& options, LogDensityPtr density, LogDensityPtr start)
    : Kernel(options, std::move(density), std::move(start)), options_(options) {
  adapt_to(options.target_acceptance);
}

Mapped Metropolis::move(const Tensor& x) {
  const auto size = step();
  auto point = x;
  const auto start = log_prob_of(x);
  auto here = start;
  for (int64_t i = 0; i < options_.steps; ++i) {
    const auto proposal = point + size * torch::randn_like(x);
    const auto there = log_prob_of(proposal);
    const auto accept = accepted(there - here);
    point = chosen(accept, proposal, point);
    here = torch::where(accept, there, here);
  }
  return {point, balance(x, point, start, here)};
}

Mala::Mala(const Options& options, LogDensityPtr density, LogDensityPtr start)
    : Kernel(options, std::move(density), std::move(start)), options_(options) {
  adapt_to(options.target_acceptance);
}

Mapped Mala::move(const Tensor& x) {
  const auto e = step(), root = (2 * e).sqrt(), half_root = (e / 2).sqrt();
  auto point = x;
  auto here = slope(x);
  const auto start = here.log_prob;
  for (int64_t i = 0; i < options_.steps; ++i) {
    const auto noise = torch::randn_like(x);
    const auto proposal = point + e * here.gradient + root * noise;
    Sloped there;
    Tensor accept;
    {
      torch::NoGradGuard no_grad;
      there = slope(proposal.detach());
      const auto back = half_root * (here.gradient + there.gradient) + noise;
      const auto work = 0.5 * sum_of_event(noise.square() - back.square());
      accept = accepted(there.log_prob - here.log_prob + work);
    }
    point = chosen(accept, proposal, point);
    // A graph goes through accepted points only: those that were rejected may be anywhere.
    here = at::GradMode::is_enabled() && point.requires_grad()
               ? slope(point)
               : Sloped{torch::where(accept, there.log_prob, here.log_prob),
                        chosen(accept, there.gradient, here.gradient)};
  }
  return {point, balance(x, point, start, here.log_prob)};
}

Hmc::Hmc(const Options& options, LogDensityPtr density, LogDensityPtr start)
    : Kernel(options, std::move(density), std::move(start)), options_(options) {
  at_least(1, "leapfrog", options.leapfrog);
  adapt_to(options.target_acceptance);
}

Mapped Hmc::move(const Tensor& x) {
  const auto t = step();
  auto point = x;
  auto here = slope(x);
  const auto start = here.log_prob;
  for (int64_t i = 0; i < options_.steps; ++i) {
    auto momentum = torch::randn_like(x);
    const auto kinetic = 0.5 * sum_of_event(momentum.square());
    auto proposal = point;
    auto there = here;
    for (int64_t leap = 0; leap < options_.leapfrog; ++leap) {
      momentum = momentum + 0.5 * t * there.gradient;
      proposal = proposal + t * momentum;
      there = slope(proposal);
      momentum = momentum + 0.5 * t * there.gradient;
    }
    const auto change = there.log_prob - here.log_prob + kinetic - 0.5 * sum_of_event(momentum.square());
    const auto accept = accepted(change.detach());
    point = chosen(accept, proposal, point);
    here = {torch::where(accept, there.log_prob, here.log_prob), chosen(accept, there.gradient, here.gradient)};
  }
  return {point, balance(x, point, start, here.log_prob)};
}

DIFFEO_LAYER(metropolis, Metropolis, "Random-walk Metropolis steps with their path weight (Wu et al. 2020).",
             "y = x + step n if accepted with min(1, p(y)/p(x)), else x; dS = log p(x) - log p(y)",
             "both ways: a value of the density for each step, and one; three with gradients",
             {"double_well",
              {{"density", {{"type", "double_well"}}}, {"lambda", 0.5}, {"steps", 5}, {"step_size", 0.25}}},
             {"adapted",
              {{"density", {{"type", "double_well"}, {"features", 3}}},
               {"steps", 3},
               {"step_size", 0.3},
               {"target_acceptance", 0.4}}});

DIFFEO_LAYER(mala, Mala, "Metropolis-adjusted Langevin steps with their path weight (Roberts and Tweedie 1996).",
             "y = x + e f(x) + sqrt(2e) n if accepted, else x; dS = log p(x) - log p(y)",
             "both ways: a gradient of the density for each step, and one; two values more with gradients",
             {"double_well",
              {{"density", {{"type", "double_well"}}}, {"lambda", 0.5}, {"steps", 5}, {"step_size", 0.02}}},
             {"adapted",
              {{"density", {{"type", "phi4"}, {"side", 2}, {"kappa", 0.15}}},
               {"steps", 3},
               {"step_size", 0.1},
               {"target_acceptance", 0.57}}});

DIFFEO_LAYER(hmc, Hmc, "Hamiltonian Monte Carlo with its path weight (Duane et al. 1987).",
             "y = x after leapfrog steps from a fresh momentum if accepted, else x; dS = log p(x) - log p(y)",
             "both ways: leapfrog gradients of the density for each step, and one; two values more with gradients",
             {"double_well",
              {{"density", {{"type", "double_well"}}}, {"lambda", 0.5}, {"steps", 2}, {"step_size", 0.15}}},
             {"adapted",
              {{"density", {{"type", "gaussian_mixture"}, {"components", 3}, {"radius", 1.5}}},
               {"lambda", 0.7},
               {"steps", 2},
               {"leapfrog", 3},
               {"step_size", 0.2},
               {"target_acceptance", 0.8}}});

}  // namespace diffeo
