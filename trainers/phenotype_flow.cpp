#include "diffeo/trainers/phenotype_flow.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "diffeo/layers/base/random.h"
#include "diffeo/trainers/fit.h"
#include "diffeo/trainers/genetics.h"

namespace diffeo {
namespace {

constexpr double margin = 0.9;         // of the first spline's domain, in which the phenotypes lie
constexpr int64_t quantile_bins = 40;  // of it

/// Phenotypes in ascending order and the normal quantiles of their ranks, (n) each.
struct Ranked {
  Tensor y, z;
  double lowest() const { return y[0].item<double>(); }
  double highest() const { return y[-1].item<double>(); }
};

Ranked ranked(const Tensor& phenotype) {
  const auto order = phenotype.argsort();
  return {phenotype.index_select(0, order), rank_normal(phenotype).index_select(0, order)};
}

/// The spline's domain: a little more than what ranks reach.
double bound_of(const Ranked& all) { return all.z.abs().max().item<double>() / margin; }

Json flow_spec(const Ranked& all, const PhenotypeFlowOptions& options) {
  const auto elementwise = [](const Json& map) { return Json{{"type", "elementwise"}, {"features", 1}, {"map", map}}; };
  const double bound = bound_of(all), half = (all.highest() - all.lowest()) / 2;
  const Json quantiles = {{"type", "rq_spline"}, {"bins", quantile_bins}, {"bound", bound},
                          {"min_width", 1e-7},   {"min_height", 1e-4},    {"min_slope", 1e-4}};
  const Json spline = {{"type", "rq_spline"}, {"bins", options.bins}, {"bound", bound}};
  return {{"type", "flow"},
          {"layers",
           {{{"type", "standardize"},
             {"features", 1},
             {"shift", std::vector<double>{all.lowest() + half}},
             {"scale", std::vector<double>{half / (margin * bound)}}},
            elementwise(quantiles),
            elementwise(spline),
            elementwise({{"type", "affine"}, {"scale", "exp"}})}},
          {"base", {{"type", "normal"}, {"features", 1}}}};
}

/// The parameters of a spline that takes quantiles of the phenotype to quantiles of the normal: knots at even heights,
/// so that a bent phenotype has knots where it has rows.
Tensor quantile_spline(const Ranked& all) {
  constexpr auto bins = quantile_bins;
  const double bound = bound_of(all), middle = (all.lowest() + all.highest()) / 2,
               scale = (all.highest() - all.lowest()) / (2 * margin * bound);
  // Interpolated between the rows; the ends of the domain lie beyond them.
  std::vector<double> x{-bound}, z{-bound};
  for (int64_t i = 0; i < all.y.size(0); ++i) {
    const double value = (all.y[i].item<double>() - middle) / scale, quantile = all.z[i].item<double>();
    if (quantile > z.back()) x.push_back(value), z.push_back(quantile);
  }
  x.push_back(bound), z.push_back(bound);
  std::vector<double> knots;
  for (int64_t k = 0; k <= bins; ++k) {
    const double height = -bound + 2 * bound * static_cast<double>(k) / static_cast<double>(bins);
    const auto after = std::upper_bound(z.begin() + 1, z.end() - 1, height) - z.begin();
    const double share = (height - z[after - 1]) / (z[after] - z[after - 1]);
    knots.push_back(x[after - 1] + share * (x[after] - x[after - 1]));
  }
  auto parameters = at::zeros({3 * bins - 1}, torch::kFloat64);
  auto* value = parameters.data_ptr<double>();
  std::vector<double> slopes;
  for (int64_t k = 0; k < bins; ++k) {
    const double width = std::max(knots[k + 1] - knots[k], 1e-6 * bound);
    value[k] = std::log(width);
    slopes.push_back(2 * bound / static_cast<double>(bins) / width);
  }
  // The harmonic mean of the slopes on both sides, through the inverse of softplus.
  for (int64_t k = 0; k + 1 < bins; ++k) {
    const double slope = 2 / (1 / slopes[k] + 1 / slopes[k + 1]);
    value[2 * bins + k] = slope > 30 ? slope : std::log(std::expm1(std::max(slope, 1e-3)));
  }
  return parameters;
}

/// Sets the first spline, which stays as it is: were its bins to learn, the wide ones would push about the narrow ones
/// where the rows are.
void hold_at_quantiles(Flow& flow, const Ranked& all) {
  torch::NoGradGuard no_grad;
  for (auto& parameter : flow.parameters()) {
    if (parameter.numel() != 3 * quantile_bins - 1) continue;
    parameter.copy_(quantile_spline(all).view_as(parameter));
    parameter.requires_grad_(false);
    return;
  }
  throw std::logic_error("phenotype flow: it has no spline of quantiles");
}

}  // namespace

PhenotypeFlow fit_phenotype_flow(const Tensor& phenotype, RowDependencePtr relatedness,
                                 const PhenotypeFlowOptions& options) {
  check(phenotype.dim() == 1 && relatedness && phenotype.size(0) == relatedness->rows(),
        "phenotype flow: expected a phenotype of shape (", relatedness ? relatedness->rows() : 0,
        "), as many as the related individuals, got ", phenotype.sizes());
  const auto y = phenotype.detach().to(torch::kCPU, torch::kFloat64);
  check(at::isfinite(y).all().item<bool>(), "phenotype flow: the phenotype holds values that are not finite");
  check(y.min().item<double>() < y.max().item<double>(), "phenotype flow: the phenotype is the same for all");
  at_least(1, "bins", options.bins);
  const SeedGuard guard(options.seed);
  PhenotypeFlow made;
  const auto all = ranked(y);
  made.flow = build_flow(flow_spec(all, options));
  made.flow->to(torch::kFloat64);
  hold_at_quantiles(*made.flow, all);
  const Batch everything{.x = y.unsqueeze(1), .context = {}, .weight = {}, .label = at::arange(y.size(0))};
  const bool learn = options.dependence < 0;
  DependentLikelihood objective(made.flow,
                                {.strength = learn ? 0.5 : options.dependence, .learn = learn ? "turns" : "no"},
                                std::move(relatedness), everything);
  const auto report = fit(objective, *in_memory(everything), nullptr,
                          {.batch_size = y.size(0),
                           .steps = options.steps,
                           .learning_rate = options.learning_rate,
                           .checkpoint_seconds = 1e9,
                           .seed = options.seed});
  check(report.message.empty(), "phenotype flow: ", report.message);
  for (auto& parameter : made.flow->parameters()) parameter.requires_grad_(true);
  made.strength = objective.strength();
  return made;
}

Tensor transformed(Flow& flow, const Tensor& phenotype) {
  check(flow.space().size() == 1 && flow.context_size() == 0,
        "phenotype flow: needs a flow of one feature without a context, got one of ", flow.space().size(),
        " features and a context of ", flow.context_size());
  torch::NoGradGuard no_grad;
  flow.eval();
  const auto own = flow.tensor_options();
  return flow.to_latent(phenotype.to(own).unsqueeze(1)).value.squeeze(1).to(torch::kCPU, torch::kFloat64);
}

}  // namespace diffeo
