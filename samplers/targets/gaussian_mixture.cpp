#include "diffeo/samplers/targets/gaussian_mixture.h"

#include <torch/types.h>

#include <cmath>
#include <numbers>

#include "diffeo/layers/base/ranges.h"

namespace diffeo {
namespace {

constexpr int64_t most_corner_features = 12;  // 4096 components

std::vector<std::vector<double>> means_of(const GaussianMixture::Options& o) {
  std::vector<std::vector<double>> means = o.means;
  if (!means.empty()) {
    for (size_t k = 0; k < means.size(); ++k) {
      if (static_cast<int64_t>(means[k].size()) != o.features)
        throw SpecError(c10::str("means/", k), c10::str("expected ", o.features, " numbers, got ", means[k].size()));
      for (const double value : means[k]) finite(c10::str("means/", k), value);
    }
    return means;
  }
  check_choice("arrangement", o.arrangement, {"ring", "corners"});
  above_zero("radius", o.radius);
  const auto features = static_cast<size_t>(o.features);
  if (o.arrangement == "ring") {
    if (o.features < 2) throw SpecError("features", "a ring needs at least 2; give means for one feature");
    at_least(1, "components", o.components);
    for (int64_t k = 0; k < o.components; ++k) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(o.components);
      std::vector<double> mean(features);
      mean[0] = o.radius * std::cos(angle);
      mean[1] = o.radius * std::sin(angle);
      means.push_back(mean);
    }
    return means;
  }
  if (o.features > most_corner_features)
    throw SpecError("features", c10::str("corners are for at most ", most_corner_features, ", got ", o.features));
  for (size_t corner = 0; corner < (size_t{1} << features); ++corner) {
    std::vector<double> mean(features);
    for (size_t i = 0; i < features; ++i) mean[i] = (corner >> i) % 2 == 1 ? o.radius : -o.radius;
    means.push_back(mean);
  }
  return means;
}

}  // namespace

GaussianMixture::GaussianMixture(const Options& options)
    : Target(Space::reals(at_least(1, "features", options.features))), options_(options) {
  above_zero("scale", options.scale);
  const auto means = means_of(options);
  std::vector<double> flat;
  for (const auto& mean : means) flat.insert(flat.end(), mean.begin(), mean.end());
  const auto components = static_cast<int64_t>(means.size());
  exact_.means = torch::tensor(flat, torch::kFloat64).view({components, options.features});
  auto weights = torch::ones({components}, torch::kFloat64);
  if (!options.weights.empty()) {
    if (static_cast<int64_t>(options.weights.size()) != components)
      throw SpecError("weights",
                      c10::str("expected one for each of ", components, " components, got ", options.weights.size()));
    for (const double weight : options.weights) above_zero("weights", weight);
    weights = torch::tensor(options.weights, torch::kFloat64);
  }
  exact_.log_weights = (weights / weights.sum()).log();
  near_ = exact_;
}

const GaussianMixture::Components& GaussianMixture::components_like(const Tensor& x) {
  if (near_.means.scalar_type() != x.scalar_type() || near_.means.device() != x.device())
    near_ = {exact_.means.to(x.options()), exact_.log_weights.to(x.options())};
  return near_;
}

Tensor GaussianMixture::components_at(const Tensor& x) {
  const auto& [means, log_weights] = components_like(x);
  const double scale = options_.scale;
  const double constant =
      -static_cast<double>(options_.features) * (std::log(scale) + 0.5 * std::log(2 * std::numbers::pi));
  const auto squares = (x.unsqueeze(-2) - means).square().sum(-1);
  return log_weights + constant - squares / (2 * scale * scale);
}

Tensor GaussianMixture::evaluate(const Tensor& x) { return components_at(x).logsumexp(-1); }

Sloped GaussianMixture::evaluate_with_gradient(const Tensor& x) {
  const auto components = components_at(x);
  const auto nearest = torch::matmul(components.softmax(-1), components_like(x).means);
  return {components.logsumexp(-1), (nearest - x) / (options_.scale * options_.scale)};
}

DIFFEO_TARGET(gaussian_mixture, GaussianMixture, "A mixture of round normals of one deviation; normalised.",
              "log p = log sum_k w_k N(x; m_k, scale^2 I)", {"ring", {{"components", 5}, {"scale", 0.7}}},
              {"corners", {{"features", 3}, {"arrangement", "corners"}, {"radius", 1.0}, {"scale", 0.7}}},
              {"means", {{"features", 1}, {"means", Json::parse("[[-1], [2]]")}, {"weights", {1.0, 3.0}}}});

}  // namespace diffeo
