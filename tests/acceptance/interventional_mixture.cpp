// The authors' simulation with a shift of 2.5 between the groups: X ~ N(2.5, 1) without treatment and N(0, 1) with it,
// Y = 1.5 + 2.18 X + e without, 2 - 1.82 X + X^2 + e with. Y[0] is a mixture of two normals in closed form; those who
// were not treated are mostly from one of them.
#include <torch/types.h>

#include <cmath>
#include <numbers>

#include "accept.h"
#include "diffeo/layers/base/random.h"
#include "diffeo/trainers/interventional/train.h"

namespace {

using namespace diffeo;

constexpr double shift = 2.5;

Study simulated(int64_t rows) {
  const auto a = torch::arange(rows, torch::kInt64).remainder(2);
  const auto x = torch::randn({rows}) + shift * (1 - a);
  const auto y = torch::where(a.eq(0), 1.5 + 2.18 * x, 2 - 1.82 * x + x.square()) + torch::randn({rows});
  return {x.unsqueeze(1), a, y.unsqueeze(1)};
}

/// log p(Y[0] = y), of (n).
Tensor true_log_prob(const Tensor& y) {
  const double variance = 1 + 2.18 * 2.18;
  const auto at = [&](double mean) { return -0.5 * (y - mean).square() / variance; };
  return torch::logaddexp(at(1.5 + 2.18 * shift), at(1.5)) - std::log(2.0) -
         0.5 * std::log(2 * std::numbers::pi * variance);
}

double divergence(Correction correction, const InterventionalModelPtr& model, const Study& study, uint64_t seed) {
  torch::manual_seed(seed);
  const auto fresh = InterventionalModel::for_study(study, {0, 1}, model->options(), seed);
  fit_targets(fresh->targets(), model->predict(study), study, {.correction = correction},
              {.batch_size = 512, .steps = 2000, .learning_rate = 5e-3, .average = 0.995, .seed = seed});
  torch::NoGradGuard no_grad;
  auto& target = *fresh->targets()[0];
  target.to(torch::kFloat64);
  const auto y = torch::linspace(-15, 25, 8001, torch::kFloat64);
  const auto truth = true_log_prob(y);
  return (truth.exp() * (truth - target.log_prob(y.unsqueeze(1)))).sum().item<double>() * 40 / 8000;
}

}  // namespace

int main() {
  diffeo::testing::Acceptance accept;
  for (uint64_t seed : {0, 1, 2}) {
    torch::manual_seed(seed);
    const auto study = simulated(1000);
    InterventionalOptions options;
    options.target_bins = 5;
    const auto model = InterventionalModel::for_study(study, {0, 1}, options, seed);
    InterventionalFit how;
    how.nuisance.steps = 2000;
    how.target.steps = 1;
    how.nuisance.seed = how.target.seed = seed;
    fit_interventional(*model, study, how);
    accept.at_most(c10::str("mixture_kl_seed", seed), divergence(Correction::aiptw, model, study, seed), 0.05);
    std::printf("plug-in: %.4f\n", divergence(Correction::plug_in, model, study, seed));
  }
  return accept.exit_code();
}
