#include "diffeo/trainers/interventional/predictions.h"

#include <torch/types.h>

namespace diffeo {
namespace {

constexpr int64_t points_at_a_time = 1 << 18;

/// The base's quantiles that carry the outcome's integral: equal steps in z, where the normal density decides. Smooth
/// integrands converge faster in this than in any power of the step.
struct BaseRule {
  Tensor z, probability;  ///< (Q)
};
BaseRule base_rule(const torch::TensorOptions& options) {
  const auto z = torch::linspace(-5.2, 5.2, 105, torch::kFloat64);
  const auto density = (-0.5 * z.square()).exp();
  return {z.to(options), (density / density.sum()).to(options)};
}

}  // namespace

Tensor Predictions::mean(int64_t column) const {
  if (shared_grid()) return probability.matmul(points.select(1, column));
  return points.select(-1, column).mean(-1);
}

Tensor Predictions::cumulative(double y, int64_t column) const {
  if (!shared_grid()) return points.select(-1, column).le(y).to(points.dtype()).mean(-1);
  // A point's probability is that of its neighbourhood, half a step to each side.
  const auto grid = points.select(1, column);
  const auto below = ((y - grid) / (grid[1] - grid[0]) + 0.5).clamp(0, 1);
  return probability.matmul(below);
}

Tensor outcome_grid(const Tensor& outcome, int64_t points) {
  at_least(2, "grid", points);
  const auto least = outcome.min(), most = outcome.max();
  const auto pad = (0.25 * (most - least)).clamp_min(1e-6);
  const auto steps = torch::linspace(0, 1, points, outcome.options());
  return ((least - pad) + steps * (most - least + 2 * pad)).unsqueeze(1);
}

Tensor deposit(const Tensor& values, const Tensor& probability, const Tensor& grid) {
  const auto last = grid.size(0) - 1;
  const auto place =
      ((values - grid[0]) / ((grid[last] - grid[0]) / static_cast<double>(last))).clamp(0, static_cast<double>(last));
  const auto left = place.floor().clamp_max(static_cast<double>(last - 1));
  const auto to_right = (place - left) * probability;
  auto result = torch::zeros({values.size(0), grid.size(0)}, values.options());
  const auto index = left.to(torch::kInt64);
  result.scatter_add_(1, index, probability.expand_as(to_right) - to_right);
  result.scatter_add_(1, index + 1, to_right);
  return result;
}

Predictions predict(Nuisance& nuisance, const Tensor& covariates, const Tensor& grid,
                    const QuadratureOptions& options) {
  torch::NoGradGuard no_grad;
  nuisance.eval();
  const auto& flow = *nuisance.outcome();
  const auto outcomes = flow.space().size(), treatments = nuisance.treatments();
  check((outcomes == 1) == grid.defined(), "predict: one outcome needs a grid, several take none");
  const auto rule = base_rule(covariates.options());
  const auto per_row = outcomes == 1 ? rule.z.size(0) : at_least(1, "draws", options.draws);
  std::vector<Tensor> propensity, points, probability;
  for (const auto& rows : covariates.split(std::max<int64_t>(1, points_at_a_time / (per_row * treatments)))) {
    const auto representation = nuisance.represent(rows);
    propensity.push_back(nuisance.log_propensity(representation).exp());
    std::vector<Tensor> here;
    for (int64_t a = 0; a < treatments; ++a) {
      const auto treatment = torch::full({rows.size(0)}, a, rows.options().dtype(torch::kInt64));
      const auto context = nuisance.context(representation, treatment).unsqueeze(1);
      if (outcomes == 1) {
        const auto z = rule.z.view({1, -1, 1}).expand({rows.size(0), -1, 1}).contiguous();
        const auto y = nuisance.outcome()->to_data(z, context).value.squeeze(-1);
        here.push_back(deposit(y, rule.probability, grid.squeeze(1)));
      } else {
        here.push_back(nuisance.outcome()->draw({rows.size(0), per_row}, context).value);
      }
    }
    (outcomes == 1 ? probability : points).push_back(torch::stack(here, 1));
  }
  if (outcomes == 1) return {torch::cat(propensity), grid, torch::cat(probability)};
  return {torch::cat(propensity), torch::cat(points), {}};
}

Tensor inverse_weights(const Tensor& propensity, const Tensor& treatment, double clip) {
  const auto given = torch::one_hot(treatment, propensity.size(1)).to(torch::kBool);
  return torch::where(given.logical_and(propensity.ge(clip)), propensity.clamp_min(1e-12).reciprocal(),
                      torch::zeros_like(propensity));
}

Tensor trimmed_share(const Tensor& propensity, const Tensor& treatment, double clip) {
  const auto given = torch::one_hot(treatment, propensity.size(1)).to(propensity.dtype());
  return (given * propensity.lt(clip)).sum(0) / given.sum(0).clamp_min(1);
}

}  // namespace diffeo
