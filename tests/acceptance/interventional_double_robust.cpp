// One covariate that decides both treatment and outcome: X ~ N(0, 1), P(A = 1 | X) = sigmoid(X), Y = A + X + 0.7 e, so
// that Y[a] ~ N(a, 1.49) while E[Y | A = 1] = 1.41. The corrected density has to be right with either nuisance broken,
// the plug-in wrong where the outcome's is: a wrong sign, a wrong weight or an integral outside of the weighted term
// shows in one of the variants.
#include <torch/types.h>

#include <cmath>
#include <numbers>

#include "accept.h"
#include "diffeo/layers/base/random.h"
#include "diffeo/trainers/interventional/effects.h"
#include "diffeo/trainers/interventional/train.h"

namespace {

using namespace diffeo;

constexpr double variance = 1.49;

Study simulated(int64_t rows) {
  const auto x = torch::randn({rows, 1});
  const auto treated = torch::rand({rows}).lt(x.squeeze(1).sigmoid());
  return {x, treated.to(torch::kInt64), treated.unsqueeze(1).to(torch::kFloat32) + x + 0.7 * torch::randn({rows, 1})};
}

InterventionalModelPtr model_for(const Study& study, uint64_t seed) {
  InterventionalOptions options;
  options.folds = 1;
  options.target_bins = 5;
  return InterventionalModel::for_study(study, {0, 1}, options, seed);
}

NuisancePtr learned(const Study& study, uint64_t seed) {
  const auto model = model_for(study, seed);
  const auto rows = rows_for_nuisance(*model, 0, 0.1, seed);
  fit_nuisance(model->nuisances()[0], study.select(rows.learn), study.select(rows.choose),
               {.covariate_noise = 0.05, .outcome_noise = 0.02},
               {.batch_size = 64, .steps = 3000, .learning_rate = 3e-3, .seed = seed});
  return model->nuisances()[0];
}

/// What was learned of one potential outcome.
struct Learned {
  double divergence, mean, mass;
};

std::vector<Learned> densities(const Study& study, const Predictions& predictions, Correction correction, uint64_t seed,
                               bool increasing = false) {
  torch::manual_seed(seed);
  const auto model = model_for(study, seed);
  fit_targets(model->targets(), predictions, study, {.correction = correction, .increasing = increasing, .floor = 0},
              {.batch_size = 512, .steps = 2000, .learning_rate = 5e-3, .average = 0.995, .seed = seed});
  const auto grid = torch::linspace(-8, 9, 6801, torch::kFloat64);
  const double step = 17.0 / 6800;
  std::vector<Learned> result;
  torch::NoGradGuard no_grad;
  for (int64_t a = 0; a < 2; ++a) {
    const auto& target = model->targets()[a];
    target->to(torch::kFloat64);
    const auto log_prob = target->log_prob(grid.unsqueeze(1));
    const auto truth =
        -0.5 * (grid - static_cast<double>(a)).square() / variance - 0.5 * std::log(2 * std::numbers::pi * variance);
    result.push_back({((truth.exp() * (truth - log_prob)).sum() * step).item<double>(),
                      ((log_prob.exp() * grid).sum() * step).item<double>(),
                      (log_prob.exp().sum() * step).item<double>()});
  }
  return result;
}

void run(diffeo::testing::Acceptance& accept, uint64_t seed) {
  torch::manual_seed(seed);
  const auto study = simulated(2000);
  auto blinded = study;
  blinded.covariates = torch::zeros_like(study.covariates);
  const QuadratureOptions quadrature;
  const auto grid = outcome_grid(study.outcome, quadrature.grid);
  const auto good = predict(*learned(study, seed), study.covariates, grid, quadrature);
  const auto blind = predict(*learned(blinded, seed), blinded.covariates, grid, quadrature);
  Predictions outcome_broken = blind, propensity_broken = good;
  outcome_broken.propensity = good.propensity;
  propensity_broken.propensity = torch::full_like(good.propensity, 0.5);

  const auto check = [&](const char* variant, const Predictions& predictions, double corrected_most,
                         double plug_in_least) {
    const auto corrected = densities(study, predictions, Correction::aiptw, seed);
    const auto plug_in = densities(study, predictions, Correction::plug_in, seed);
    const auto increasing = densities(study, predictions, Correction::aiptw, seed, true);
    for (int a = 0; a < 2; ++a) {
      const auto name = [&](const char* claim) { return c10::str(variant, "_", claim, "_y", a, "_seed", seed); };
      std::printf("%s: plug-in kl %.4f mean %.3f, aiptw kl %.4f mean %.3f\n", name("").c_str(), plug_in[a].divergence,
                  plug_in[a].mean, corrected[a].divergence, corrected[a].mean);
      accept.at_most(name("aiptw_kl"), corrected[a].divergence, corrected_most);
      accept.at_most(name("aiptw_increasing_kl"), increasing[a].divergence, corrected_most);
      accept.at_most(name("mass"), std::fabs(corrected[a].mass - 1), 1e-3);
      if (plug_in_least > 0) accept.at_least(name("plug_in_kl"), plug_in[a].divergence, plug_in_least);
      if (plug_in_least == 0) accept.at_most(name("mean"), std::fabs(corrected[a].mean - a), 0.12);
    }
  };
  check("right", good, 0.03, 0);
  check("outcome_broken", outcome_broken, 0.04, 0.05);
  check("propensity_broken", propensity_broken, 0.03, -1);
  // Both broken: nothing can save it, so that the variants above do show robustness and not an easy problem.
  Predictions both = blind;
  both.propensity = torch::full_like(good.propensity, 0.5);
  const auto lost = densities(study, both, Correction::aiptw, seed);
  for (int a = 0; a < 2; ++a)
    accept.at_least(c10::str("both_broken_aiptw_kl_y", a, "_seed", seed), lost[a].divergence, 0.05);
}

}  // namespace

int main() {
  diffeo::testing::Acceptance accept;
  for (uint64_t seed : {0, 1}) run(accept, seed);
  return accept.exit_code();
}
