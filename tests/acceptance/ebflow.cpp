// Energy-based training of flows: what must hold exactly, and what it must find where the answer is known.
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <cmath>
#include <numbers>

#include "accept.h"
#include "diffeo/flows/recipes.h"
#include "diffeo/trainers/fit.h"
#include "diffeo/trainers/optimizer.h"
#include "diffeo/trainers/score_matching.h"

namespace {

using namespace diffeo;

FlowPtr perturbed(const Json& spec, double scale, torch::Dtype dtype = torch::kFloat64) {
  auto flow = build_flow(spec);
  flow->to(dtype);
  torch::NoGradGuard no_grad;
  for (auto& parameter : flow->parameters()) parameter.add_(torch::randn_like(parameter), scale);
  flow->eval();
  return flow;
}

Json matrices(int64_t features, int64_t layers) { return recipe("ebflow", {.features = features, .layers = layers}); }

/// Constant and other log-determinants in any order and depth.
Json mixed(int64_t features) {
  const Json dense = {{"type", "dense_linear"}, {"features", features}},
             bent = {{"type", "elementwise"}, {"features", features}, {"map", {{"type", "smooth_leaky_relu"}}}},
             coupling = {{"type", "coupling"}, {"features", features}, {"net", {{"width", 16}}}},
             scale = {{"type", "actnorm"}, {"features", features}};
  const Json nested = {{"type", "sequential"}, {"layers", {scale, coupling, dense}}};
  return {{"type", "flow"},
          {"layers", {dense, bent, nested, {{"type", "inverse"}, {"layer", coupling}}, scale, dense}},
          {"base", {{"type", "normal"}, {"features", features}}}};
}

double largest(const Tensor& t) { return t.abs().max().item<double>(); }

Tensor jacobian(Flow& flow, const Tensor& point) {
  auto x = point.detach().requires_grad_();
  const auto z = flow.to_latent(x).value;
  std::vector<Tensor> rows;
  for (int64_t i = 0; i < z.numel(); ++i) rows.push_back(torch::autograd::grad({z[i]}, {x}, {}, true)[0]);
  return torch::stack(rows);
}

void identities(testing::Acceptance& accept) {
  torch::manual_seed(1);
  for (const auto& [name, spec] : {std::pair{"matrices", matrices(6, 2)}, {"mixed", mixed(6)}}) {
    const auto said = [&](const char* what) { return c10::str("ebflow_", name, "_", what); };
    const auto flow = perturbed(spec, 0.3);
    Energy energy(flow);
    const auto x = torch::randn({64, 6}, torch::kFloat64).requires_grad_();
    const auto of_log_prob = torch::autograd::grad({flow->log_prob(x).sum()}, {x})[0];
    accept.at_most(said("scores_that_differ_in_a_bit"), (energy.score(x.detach()) != of_log_prob).sum().item<double>(),
                   0);
    torch::NoGradGuard no_grad;
    accept.at_most(said("energy_and_normaliser_to_log_prob"),
                   largest(-energy.energy(x) - energy.log_normaliser() - flow->log_prob(x)), 1e-12);
    double error = 0;
    for (int64_t i = 0; i < 8; ++i) {
      const torch::AutoGradMode with_gradients(true);
      const auto log_det = std::get<1>(torch::linalg_slogdet(jacobian(*flow, x[i])));
      const auto z = flow->to_latent(x[i]).value;
      error = std::max(error, largest(flow->base()->log_prob(z) + log_det - flow->log_prob(x[i])));
    }
    accept.at_most(said("log_prob_to_that_of_the_jacobian"), error, 1e-11);
  }
}

/// exp(-E) integrates to Z.
void quadrature(testing::Acceptance& accept) {
  torch::manual_seed(2);
  torch::NoGradGuard no_grad;
  const auto flow = perturbed(matrices(2, 2), 0.3);
  Energy energy(flow);
  constexpr int64_t side = 4001;
  const double reach = 120, unit = 2 * reach / (side - 1);
  const auto line = torch::linspace(-reach, reach, side, torch::kFloat64);
  double total = 0;
  for (int64_t first = 0; first < side; first += 50) {
    const auto rows = line.slice(0, first, std::min(side, first + 50));
    const auto x = torch::stack({rows.view({-1, 1}).expand({-1, side}), line.expand({rows.size(0), side})}, -1);
    total += (-energy.energy(x)).exp().sum().item<double>();
  }
  const double found = total * unit * unit, want = energy.log_normaliser().exp().item<double>();
  accept.at_most("ebflow_normaliser_to_quadrature", std::abs(found / want - 1), 1e-8);
}

Tensor hadamard(int64_t size) {
  auto h = torch::ones({1, 1}, torch::kFloat64);
  while (h.size(0) < size) h = torch::cat({torch::cat({h, h}, 1), torch::cat({h, -h}, 1)});
  return h;
}

double loss_of(const std::string& name, Json options, const FlowPtr& flow, const Tensor& x) {
  options["type"] = name;
  options["per_dimension"] = false;
  const auto objective = build_objective(options, flow);
  return objective->loss({.x = x}).item<double>();
}

/// v^T (ds/dx) v summed over the rows of v (n, D), (B).
Tensor curvature(Energy& energy, const Tensor& x, const Tensor& v) {
  auto sum = torch::zeros({x.size(0)}, x.options());
  auto point = x.detach().requires_grad_();
  const auto score = energy.score(point, {}, true);
  for (int64_t i = 0; i < v.size(0); ++i)
    sum = sum + torch::autograd::grad({(score * v[i]).sum()}, {point}, {}, true)[0].mul(v[i]).sum(-1);
  return sum;
}

void objectives_agree(testing::Acceptance& accept) {
  constexpr int64_t features = 8;
  torch::manual_seed(4);
  const auto flow = perturbed(matrices(features, 2), 0.3);
  Energy energy(flow);
  const auto x = torch::randn({5, features}, torch::kFloat64);
  const double exact = loss_of("score_matching", Json::object(), flow, x);
  // D vectors of signs that are orthogonal: the mean of the traces along them is the trace.
  const auto along = curvature(energy, x, hadamard(features)) / features;
  const double sliced = (0.5 * energy.score(x).square().sum(-1) + along).mean().item<double>();
  accept.at_most("ebflow_orthogonal_slices_to_score_matching", std::abs(sliced - exact), 1e-12);
  std::vector<double> many;
  for (int i = 0; i < 64; ++i) many.push_back(loss_of("sliced_score_matching", {{"slices", 16}}, flow, x));
  const auto values = torch::tensor(many, torch::kFloat64);
  accept.at_most("ebflow_random_slices_to_score_matching_in_sigmas",
                 std::abs(values.mean().item<double>() - exact) / (values.std().item<double>() / 8), 4);

  // Differences against derivatives along the same directions, many of them at one point.
  const auto point = x[0].expand({20000, features});
  const auto difference = [&](double xi) {
    torch::manual_seed(5);
    const double by_differences = loss_of("finite_difference_score_matching", {{"xi", xi}}, flow, point);
    torch::manual_seed(5);
    const auto direction = torch::randn_like(point);
    const auto v = direction * (std::sqrt(static_cast<double>(features)) / direction.norm(2, 1, true));
    auto at = point.detach().requires_grad_();
    const auto score = energy.score(at, {}, true);
    const auto second = torch::autograd::grad({(score * v).sum()}, {at})[0].mul(v).sum(-1);
    const auto first = (score * v).sum(-1).square() / 2;
    return by_differences - (first + second).mean().item<double>();
  };
  const double coarse = difference(0.1), fine = difference(0.05);
  accept.at_most("ebflow_differences_to_derivatives_at_0.1", std::abs(coarse), 0.01);
  accept.at_least("ebflow_differences_fall_as_the_square", coarse / fine, 3.9);
  accept.at_most("ebflow_differences_fall_as_the_square", coarse / fine, 4.1);
}

/// The gradient of log Z is minus the mean gradient of the energy of the model's points.
void normaliser_gradient(testing::Acceptance& accept) {
  torch::manual_seed(6);
  const auto flow = perturbed(matrices(6, 1), 0.2);
  const auto weight = flow->parameters()[0];
  Energy energy(flow);
  const auto drawn = energy.draw(200000);
  const auto by_weight = torch::autograd::grad({energy.energy(drawn).mean()}, {weight})[0];
  const auto want = torch::linalg_inv(weight.detach()).t();
  accept.at_most("ebflow_mean_energy_gradient_to_inverse", ((by_weight - want).norm() / want.norm()).item<double>(),
                 0.03);
  const auto exact = torch::autograd::grad({energy.log_normaliser()}, {weight})[0];
  accept.at_most("ebflow_normaliser_gradient_to_inverse", largest(exact + want), 1e-12);
}

void learn(const ObjectivePtr& objective, const Tensor& rows, int64_t steps, double rate, uint64_t seed) {
  const auto data = in_memory({.x = rows});
  fit(*objective, *data, nullptr,
      {.batch_size = 256,
       .steps = steps,
       .learning_rate = rate,
       .clip_norm = 0,
       .average = 0.999,
       .checkpoint_seconds = 0,
       .seed = seed});
}

/// A Gaussian by a single matrix: the optimum is known in closed form.
void gaussian(testing::Acceptance& accept) {
  constexpr int64_t features = 8;
  torch::manual_seed(7);
  const auto axes = std::get<0>(torch::linalg_qr(torch::randn({features, features}, torch::kFloat64)));
  const auto spread = torch::linspace(0.5, 2, features, torch::kFloat64);
  const auto covariance = (axes * spread).mm(axes.t());
  const auto rows =
      (torch::randn({256 * 1500, features}, torch::kFloat64) * spread.sqrt()).mm(axes.t()).to(torch::kFloat);
  struct Trial {
    const char *name, *objective;
    Json options;
    double sigma;
  };
  const std::vector<Trial> trials{{"ml", "maximum_likelihood", Json::object(), 0},
                                  {"sml", "self_maximum_likelihood", Json::object(), 0},
                                  {"sm", "score_matching", Json::object(), 0},
                                  {"ssm", "sliced_score_matching", Json::object(), 0},
                                  {"fd", "finite_difference_score_matching", Json::object(), 0},
                                  {"dsm0.1", "denoising_score_matching", {{"sigma", 0.1}}, 0.1},
                                  {"dsm0.3", "denoising_score_matching", {{"sigma", 0.3}}, 0.3}};
  for (const auto& trial : trials) {
    torch::manual_seed(8);
    const auto flow = build_flow(matrices(features, 1));
    Json spec = {{"type", trial.objective}};
    spec.update(trial.options);
    learn(build_objective(spec, flow), rows, 3000, 1e-2, 9);
    torch::NoGradGuard no_grad;
    const auto weight = flow->parameters()[0].detach().to(torch::kFloat64),
               bias = flow->parameters()[1].detach().to(torch::kFloat64);
    const auto noise = trial.sigma * trial.sigma * torch::eye(features, torch::kFloat64);
    const auto want = torch::linalg_inv(covariance + noise), got = weight.t().mm(weight);
    const auto name = std::string("ebflow_gaussian_") + trial.name;
    accept.at_most(name + "_precision", ((got - want).norm() / want.norm()).item<double>(), 0.06);
    if (trial.sigma > 0.2) {
      // Forgetting the noise would be noticed.
      const auto clean = torch::linalg_inv(covariance);
      accept.at_least(name + "_precision_without_the_noise", ((got - clean).norm() / clean.norm()).item<double>(),
                      0.06);
      continue;
    }
    const auto log_det = [](const Tensor& m) { return std::get<1>(torch::linalg_slogdet(m)); };
    const auto gap = 0.5 * (got.mm(covariance).trace() + bias.square().sum()) - log_det(weight) -
                     0.5 * (features + log_det(covariance));
    accept.at_most(name + "_nats", gap.item<double>(), 0.01);
  }
}

/// Data that the flow can be, but no Gaussian.
void realizable(testing::Acceptance& accept) {
  constexpr int64_t features = 8;
  torch::manual_seed(10);
  auto truth = build_flow(matrices(features, 2));
  {
    torch::NoGradGuard no_grad;
    // Points of a few units, so that noise of 0.3 is little to them, and far enough apart to reach both slopes.
    double scale = 1.7;
    for (auto& parameter : truth->parameters())
      if (parameter.dim() == 2) {
        const auto turned = std::get<0>(torch::linalg_qr(torch::randn_like(parameter)));
        parameter.copy_(scale * (turned + 0.15 * torch::randn_like(parameter)));
        scale = 0.5;
      } else {
        parameter.normal_(0, 0.5);
      }
  }
  torch::NoGradGuard no_grad;
  const auto rows = truth->sample(256 * 2000), test = truth->sample(50000);
  const double entropy = -truth->log_prob(test).mean().item<double>();
  const auto centred = rows - rows.mean(0);
  const auto covariance = centred.t().mm(centred) / static_cast<double>(rows.size(0));
  const double best_gaussian = 0.5 * (features * std::log(2 * std::numbers::pi * std::numbers::e) +
                                      std::get<1>(torch::linalg_slogdet(covariance)).item<double>()) -
                               entropy;
  std::printf("true NLL %.3f, the best Gaussian's is %.3f above\n", entropy, best_gaussian);
  const std::vector<std::pair<const char*, Json>> trials{
      {"ml", {{"type", "maximum_likelihood"}}},
      {"ssm", {{"type", "sliced_score_matching"}}},
      {"fd", {{"type", "finite_difference_score_matching"}}},
      {"dsm0.3", {{"type", "denoising_score_matching"}, {"sigma", 0.3}}}};
  for (const auto& [name, spec] : trials) {
    torch::manual_seed(11);
    const auto flow = build_flow(matrices(features, 2));
    {
      const torch::AutoGradMode with_gradients(true);
      learn(build_objective(spec, flow), rows, 4000, 1e-2, 12);
    }
    flow->eval();
    const double gap = -flow->log_prob(test).mean().item<double>() - entropy;
    if (std::string(name) == "ml" || std::string(name) == "fd") {
      std::printf("%s is %.3f above\n", name, gap);
      continue;
    }
    accept.at_most(std::string("ebflow_realizable_") + name + "_nats", gap, 0.45);
    accept.at_most(std::string("ebflow_realizable_") + name + "_over_gaussian", gap / best_gaussian, 0.62);
  }
}

/// Beta-distributed pixels: without matching after the logits the gradients are those of the logits' steepness.
void preprocessing(testing::Acceptance& accept) {
  constexpr int64_t features = 32;
  const auto norms = [&](bool after) {
    torch::manual_seed(13);
    auto spec = matrices(features, 2);
    spec["layers"].insert(
        spec["layers"].begin(),
        Json{{"type", "transform"}, {"features", features}, {"kinds", std::vector<std::string>(features, "logit")}});
    const auto flow = perturbed(spec, 0.02, torch::kFloat32);
    flow->train();
    const auto objective =
        build_objective({{"type", "sliced_score_matching"}, {"match_after_preprocessing", after}}, flow);
    Optimizer optimizer(objective->parameters(), {.clip_norm = 1});
    double sum = 0;
    for (int step = 0; step < 200; ++step) {
      // Beta(1/2, 1/2) by its inverse distribution function.
      const auto x = (torch::rand({100, features}) * (std::numbers::pi / 2)).sin().square().clamp(1e-6, 1 - 1e-6);
      optimizer.zero_grad();
      objective->loss({.x = x}).backward();
      const double norm = optimizer.grad_norm().item<double>();
      sum += norm;
      optimizer.step(1e-4, norm);
    }
    return sum / 200;
  };
  accept.at_least("ebflow_gradient_norm_before_over_after_preprocessing", norms(false) / norms(true), 20);
}

}  // namespace

int main() {
  diffeo::testing::Acceptance accept;
  identities(accept);
  quadrature(accept);
  objectives_agree(accept);
  normaliser_gradient(accept);
  gaussian(accept);
  realizable(accept);
  preprocessing(accept);
  return accept.exit_code();
}
