#pragma once

// Two groups in the plane whose densities are known: mixtures of two unit normals at (-3, s) and (3, s), s = 3 for
// group 0 and -3 for group 1. The raw points tell the group in 998 of 1000 cases.
#include <torch/types.h>

#include <memory>

#include "diffeo/flows/full_mixture.h"
#include "diffeo/trainers/fair/audit.h"
#include "diffeo/trainers/fair/fair_fit.h"

namespace diffeo::testing {

inline DistributionPtr toy_density(int64_t group, torch::Dtype dtype = torch::kFloat32) {
  auto density = std::make_shared<FullMixture>(FullMixture::Options{.features = 2, .components = 2});
  density->to(torch::kFloat64);
  const double height = group == 0 ? 3 : -3;
  density->set(torch::full({2}, 0.5, torch::kFloat64), torch::tensor({{-3.0, height}, {3.0, height}}, torch::kFloat64),
               torch::eye(2, torch::kFloat64).expand({2, 2, 2}));
  density->to(dtype);
  return density;
}

/// `label(x1, group)` of rows (n) gives their labels.
using ToyLabel = Tensor (*)(const Tensor& first, const Tensor& group);

/// The right half in both groups.
inline Tensor easy_label(const Tensor& first, const Tensor&) { return (first > 0).to(torch::kLong); }
/// The right half in group 0, the left one in group 1.
inline Tensor hard_label(const Tensor& first, const Tensor& group) {
  return (first > 0).logical_xor(group == 1).to(torch::kLong);
}

inline FairRows toy_rows(int64_t of_each, ToyLabel label) {
  const torch::NoGradGuard no_grad;
  const auto x = torch::cat({toy_density(0)->sample(of_each), toy_density(1)->sample(of_each)});
  const auto group = torch::arange(2 * of_each).ge(of_each).to(torch::kLong);
  return {x, group, label(x.select(1, 0), group)};
}

/// What training and examination gave: the certificate is computed with the exact densities in double precision.
struct ToyResult {
  FairFit fitted;
  Certificate certificate;
  double adversary = 0, task = 0;
};

inline FairTraining toy_training(double gamma, uint64_t seed) {
  FairTraining training;
  training.model = {.features = 2, .layers = 8};
  training.objective = {.gamma = gamma, .ramp_end = 750, .draws = 256};
  training.fit = {.batch_size = 512,
                  .steps = 1500,
                  .learning_rate = 3e-3,
                  .clip_norm = 10,
                  .evaluate_every = 100,
                  .checkpoint_seconds = 1e9,
                  .seed = seed};
  return training;
}

inline void examine_toy(ToyResult& result, ToyLabel label, uint64_t seed) {
  torch::manual_seed(seed);
  auto& model = *result.fitted.model;
  const auto test = toy_rows(20000, label);
  const torch::NoGradGuard no_grad;
  result.task = accuracy(model.classify(model.encode_rows(test.x, test.group)).argmax(-1), test.label);
  const auto latent = [&](int64_t of_each) {
    const auto rows = toy_rows(of_each, label);
    return FairRows{model.encode_rows(rows.x, rows.group), rows.group, rows.label};
  };
  for (const auto& score : attack(latent(10000), latent(2000), latent(20000), 2, 1200, seed))
    result.adversary = std::max(result.adversary, score.accuracy);
  model.to(torch::kFloat64);
  result.certificate = certify(
      drawn_log_densities(model, {toy_density(0, torch::kFloat64), toy_density(1, torch::kFloat64)}, 40000), 0.99);
  model.to(torch::kFloat32);
}

inline ToyResult run_toy(const FairTraining& training, ToyLabel label) {
  const uint64_t seed = training.fit.seed;
  torch::manual_seed(seed);
  const auto train = toy_rows(100000, label), valid = toy_rows(2000, label);
  ToyResult result;
  result.fitted = fit_fair(train, valid, {{toy_density(0), toy_density(1)}}, training);
  examine_toy(result, label, seed);
  return result;
}

}  // namespace diffeo::testing
