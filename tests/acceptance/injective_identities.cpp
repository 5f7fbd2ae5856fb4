// The surrogate of the free-form injective flow: its gradient against that of the volume it stands for (F1), and the
// linear flow, whose optimum is principal component analysis (F2).
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <cmath>
#include <numbers>

#include "accept.h"
#include "diffeo/trainers/fit.h"
#include "diffeo/trainers/free_form_injective.h"

namespace {

using namespace diffeo;

constexpr auto f64 = torch::kFloat64;

double largest(const Tensor& t) { return t.abs().max().item<double>(); }

Tensor gradient(const Tensor& of, const Tensor& by) { return torch::autograd::grad({of}, {by})[0]; }

/// F1, by formulas: matrices F (d, D) and G = pinv(F).
void identities(diffeo::testing::Acceptance& accept) {
  torch::manual_seed(1);
  const int64_t d = 3, features = 6;
  const auto encoder = torch::randn({d, features}, f64).requires_grad_();
  const auto decoder = torch::linalg_pinv(encoder.detach()).requires_grad_();
  const auto want = gradient(0.5 * torch::logdet(encoder.matmul(encoder.t())), encoder);
  const auto basis = std::sqrt(static_cast<double>(d)) * std::get<0>(torch::linalg_qr(torch::randn({d, d}, f64)));
  const auto surrogate = [&](const Tensor& v) {  // v (n, d)
    return (v * v.matmul(decoder.detach().t()).matmul(encoder.t())).sum() / v.size(0);
  };
  accept.at_most("surrogate_of_a_basis", largest(gradient(surrogate(basis.t()), encoder) - want), 1e-10);
  const auto one = torch::randn({200000, d}, f64);
  const auto sphere = one * (std::sqrt(static_cast<double>(d)) / one.norm(2, -1, true));
  accept.at_most("surrogate_of_spheres",
                 (gradient(surrogate(sphere), encoder) - want).norm().item<double>() / want.norm().item<double>(),
                 0.01);
  const auto by_decoder = gradient(0.5 * torch::logdet(decoder.t().matmul(decoder)), decoder);
  const auto trace = (torch::linalg_pinv(decoder).detach().t() * decoder).sum();
  accept.at_most("surrogate_of_the_decoder", largest(gradient(trace, decoder) - by_decoder), 1e-10);
  const auto square = torch::randn({d, d}, f64).requires_grad_(), inverse = torch::linalg_inv(square.detach());
  const auto v = basis.t();
  const auto there = (v * v.matmul(inverse.t()).matmul(square.t())).sum() / d;
  accept.at_most("surrogate_of_a_square_map",
                 largest(gradient(there, square) - gradient(std::get<1>(torch::slogdet(square)), square)), 1e-10);
}

/// F1, by the product: the objective's gradient for a linear layer against that of latent likelihood, volume of the
/// encoder and reconstruction, written out.
void objective_of_a_linear_layer(diffeo::testing::Acceptance& accept) {
  torch::manual_seed(2);
  const int64_t d = 3, features = 6;
  const Json net = {{"type", "mlp"}, {"depth", 0}};
  const auto flow = build_flow(
      {{"type", "flow"},
       {"layers", {{{"type", "free_form"}, {"features", features}, {"latent", d}, {"encoder", net}, {"decoder", net}}}},
       {"base", {{"type", "normal"}, {"features", d}}}});
  flow->to(f64);
  const auto parameters = flow->parameters();  // weight and bias of the encoder, then of the decoder
  {
    torch::NoGradGuard no_grad;
    Tensor(parameters[2]).copy_(torch::linalg_pinv(parameters[0]));
  }
  const double beta = 2;
  FreeFormInjective objective(flow, {.beta = beta, .probes = d});
  const auto x = torch::randn({32, features}, f64);
  const auto z = torch::addmm(parameters[1], x, parameters[0].t());
  const auto back = torch::addmm(parameters[3], z, parameters[2].t());
  const auto written = 0.5 * z.square().sum(-1).mean() + beta * (x - back).square().sum(-1).mean() -
                       0.5 * torch::logdet(parameters[0].matmul(parameters[0].t()));
  const auto want = torch::autograd::grad({written}, parameters);
  const auto got = torch::autograd::grad({objective.loss({.x = x})}, parameters);
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) worst = std::max(worst, largest(got[i] - want[i]));
  accept.at_most("objective_of_a_linear_layer", worst, 1e-10);
  // One probe a row: the same on average. Every row of a large batch draws its own.
  FreeFormInjective single(flow, {.beta = beta, .probes = 1});
  const auto many = x.repeat({8192, 1});
  const auto average = torch::autograd::grad({single.loss({.x = many})}, parameters);
  accept.at_most("objective_of_single_probes",
                 (average[0] - want[0]).norm().item<double>() / want[0].norm().item<double>(), 0.01);
}

/// F2: eigenvalues 4, 2, .5, .2, .1 in a random basis; the optimum is the whitened projection on the first two.
void principal_components(diffeo::testing::Acceptance& accept) {
  torch::manual_seed(3);
  const int64_t d = 2, features = 5;
  const auto eigenvalues = torch::tensor({4.0, 2.0, 0.5, 0.2, 0.1}, f64);
  const auto basis = std::get<0>(torch::linalg_qr(torch::randn({features, features}, f64)));
  const auto draw = [&](int64_t rows) {
    return (torch::randn({rows, features}, f64) * eigenvalues.sqrt()).matmul(basis.t());
  };
  const Json net = {{"type", "mlp"}, {"depth", 0}};
  const auto flow = build_flow(
      {{"type", "flow"},
       {"layers", {{{"type", "free_form"}, {"features", features}, {"latent", d}, {"encoder", net}, {"decoder", net}}}},
       {"base", {{"type", "normal"}, {"features", d}}}});
  flow->to(f64);
  FreeFormInjective objective(flow, {.beta = 10});
  const auto data = in_memory({.x = draw(512 * 3000)});
  fit(objective, *data, nullptr,
      {.batch_size = 512, .steps = 3000, .learning_rate = 1e-2, .clip_norm = 0, .checkpoint_seconds = 0, .seed = 1});
  torch::NoGradGuard no_grad;
  const auto parameters = flow->parameters();
  const auto &encoder = parameters[0], &decoder = parameters[2];
  const auto first = basis.narrow(1, 0, d);
  const auto span = std::get<0>(torch::linalg_qr(decoder));
  accept.at_least("linear_principal_angle_cosine", torch::linalg_svdvals(first.t().matmul(span)).min().item<double>(),
                  0.999);
  const auto covariance = (basis * eigenvalues).matmul(basis.t());
  const auto unit = torch::eye(d, f64);
  accept.at_most("linear_latent_covariance", largest(encoder.matmul(covariance).matmul(encoder.t()) - unit), 0.05);
  accept.at_most("linear_left_inverse", largest(encoder.matmul(decoder) - unit), 0.01);
  // Of the projections, as exact integrals: E|z|^2 / 2 = d / 2 and 1/2 sum log eigenvalues at the optimum.
  const double best = 0.5 * static_cast<double>(d) * (1 + std::log(2 * std::numbers::pi)) + 0.5 * std::log(4.0 * 2.0);
  const double nll = -flow->project(draw(400000)).log_prob.mean().item<double>();
  accept.at_most("linear_nll_gap", std::abs(nll - best), 0.01);
}

}  // namespace

int main() {
  diffeo::testing::Acceptance accept;
  identities(accept);
  objective_of_a_linear_layer(accept);
  principal_components(accept);
  return accept.exit_code();
}
