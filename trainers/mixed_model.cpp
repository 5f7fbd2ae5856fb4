#include "diffeo/trainers/mixed_model.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <numbers>

#include "diffeo/data/relatedness.h"
#include "diffeo/layers/base/error.h"
#include "diffeo/trainers/tail_probability.h"

namespace diffeo {
namespace {

// Lambda is sought on a grid of its logarithm, then between the neighbours of the best point.
const double lowest = std::log(1e-5), highest = std::log(1e5);
constexpr int64_t grid_points = 41;
constexpr int refinements = 14;
constexpr double smallest_step = 1e-6;  // of log lambda: below it, differences of likelihoods are rounding
constexpr double golden = 0.3819660112501051;
constexpr int64_t markers_at_once = 128;  // their rows fit into a core's cache
constexpr double explained = 1e-9;        // a marker of which less is left beside the covariates has no say

Tensor in_float64(const Tensor& values) { return values.detach().to(torch::kCPU, torch::kFloat64); }

/// What is left of products between the covariates, a marker x and y in the metric H^-1 when one column after another
/// is projected out: Gaussian elimination of the matrix of all products.
struct Swept {
  Tensor log_det;     ///< log|A^T H^-1 A| for all columns but y
  Tensor xx, xy, yy;  ///< products after the covariates alone; xx and xy undefined without a marker
  Tensor residual;    ///< y^T P y after all columns
};

Swept sweep(Tensor products, int64_t covariates, bool marker) {
  const auto pick = [&](int64_t i, int64_t j) { return products.select(-1, j).select(-1, i); };
  const auto eliminate = [&](int64_t j, const Tensor& pivot) {
    const auto column = products.select(-1, j);
    products = products - column.unsqueeze(-1) * column.unsqueeze(-2) / pivot.unsqueeze(-1).unsqueeze(-1);
  };
  Swept swept;
  const auto before = marker ? pick(covariates, covariates) : Tensor();
  swept.log_det = at::zeros_like(pick(0, 0));
  for (int64_t j = 0; j < covariates; ++j) {
    const auto pivot = pick(j, j);
    swept.log_det = swept.log_det + pivot.log();
    eliminate(j, pivot);
  }
  const auto y = covariates + (marker ? 1 : 0);
  swept.yy = pick(y, y);
  if (marker) {
    const auto left = pick(covariates, covariates), sound = left > explained * before;
    swept.xx = at::where(sound, left, at::ones_like(left));
    swept.xy = at::where(sound, pick(covariates, y), at::zeros_like(left));
    swept.log_det = swept.log_det + swept.xx.log();
    swept.residual = swept.yy - swept.xy.square() / swept.xx;
  } else {
    swept.residual = swept.yy;
  }
  swept.residual = swept.residual.clamp_min(1e-300);
  return swept;
}

Tensor weights_at(const Tensor& log_lambda, const Tensor& eigenvalues) {
  return (log_lambda.exp().unsqueeze(-1) * eigenvalues + 1).reciprocal();
}

/// Maximises functions of one number, each seen at the points of a grid, all at once: `values` (m, G) at `grid` (G),
/// then `function` at (m) points. Parabolas through three points, with golden sections for safety between them.
template <class Function>
Tensor maximised(const Tensor& grid, const Tensor& values, Function&& function) {
  const auto best = values.argmax(1), middle = best.clamp(1, grid.size(0) - 2);
  const auto value_at = [&](const Tensor& index) { return values.gather(1, index.unsqueeze(1)).squeeze(1); };
  auto left = grid.index_select(0, middle - 1), centre = grid.index_select(0, middle),
       right = grid.index_select(0, middle + 1);
  auto f_left = value_at(middle - 1), f_centre = value_at(middle), f_right = value_at(middle + 1);
  for (int i = 0; i < refinements; ++i) {
    const auto up = right - centre, down = centre - left;
    const auto section = at::where(up > down, centre + golden * up, centre - golden * down);
    auto next = section;
    if (i % 3 != 2) {
      const auto a = down * (f_centre - f_right), b = up * (f_centre - f_left);
      // The vertex of the parabola: centre - (down a - up b) / (2 (a + b)).
      const auto vertex = centre - (down * a - up * b) / (2 * (a + b));
      const auto step = (vertex - centre).abs() < smallest_step;
      const auto beside = at::where(up > down, centre + smallest_step, centre - smallest_step);
      const auto inside = (a + b > 0).logical_and(vertex > left).logical_and(vertex < right);
      next = at::where(inside, at::where(step, beside, vertex), section);
    }
    const auto f_next = function(next);
    const auto better = f_next > f_centre, above = next > centre;
    const auto new_left = better.logical_and(above), new_right = better.logical_and(above.logical_not());
    const auto cut_right = better.logical_not().logical_and(above), cut_left = (better.logical_or(above)).logical_not();
    left = at::where(new_left, centre, at::where(cut_left, next, left));
    f_left = at::where(new_left, f_centre, at::where(cut_left, f_next, f_left));
    right = at::where(new_right, centre, at::where(cut_right, next, right));
    f_right = at::where(new_right, f_centre, at::where(cut_right, f_next, f_right));
    centre = at::where(better, next, centre);
    f_centre = at::where(better, f_next, f_centre);
  }
  const auto at_end = (best == 0).logical_or(best == grid.size(0) - 1);
  return at::where(at_end, grid.index_select(0, best), centre);
}

double log_likelihood_constant(double freedom) {
  return freedom / 2 * (std::log(freedom / (2 * std::numbers::pi)) - 1);
}

}  // namespace

/// The columns that do not change from marker to marker.
struct MixedModel::Fixed {
  Tensor columns;      ///< (n, C + 2): covariates and y, rotated
  Tensor pairs;        ///< (n, (C + 2)^2): their products
  Tensor eigenvalues;  ///< (n)
  int64_t covariates = 1;

  int64_t rows() const { return columns.size(0); }

  /// All products for each row of weights, without a marker: (m, q, q) from (m, n).
  Tensor products(const Tensor& weights) const {
    const auto q = covariates + 1;
    return weights.matmul(pairs).view({-1, q, q});
  }
  /// With the marker put between covariates and y. `weights` is (m, n), one row for each marker.
  Tensor products(const Tensor& weights, const Tensor& markers) const {
    const auto weighted = weights * markers;
    return with_marker(products(weights), weighted.matmul(columns), (weighted * markers).sum(1));
  }
  /// With the same weights (G, n) for all markers: (m, G, q, q).
  Tensor products_on_grid(const Tensor& weights, const Tensor& markers) const {
    const auto count = weights.size(0), m = markers.size(0), q = covariates + 1;
    const auto weighted = (weights.t().unsqueeze(2) * columns.unsqueeze(1)).reshape({rows(), count * q});
    return with_marker(products(weights).unsqueeze(0).expand({m, count, q, q}),
                       markers.matmul(weighted).view({m, count, q}), markers.square().matmul(weights.t()));
  }

 private:
  Tensor with_marker(const Tensor& all, const Tensor& cross, const Tensor& square) const {
    const auto c = covariates;
    const auto before = cross.narrow(-1, 0, c), y = cross.narrow(-1, c, 1);
    const auto top = at::cat(
        {all.narrow(-2, 0, c).narrow(-1, 0, c), before.unsqueeze(-1), all.narrow(-2, 0, c).narrow(-1, c, 1)}, -1);
    const auto marker = at::cat({before, square.unsqueeze(-1), y}, -1).unsqueeze(-2);
    const auto last =
        at::cat({all.narrow(-2, c, 1).narrow(-1, 0, c), y.unsqueeze(-1), all.narrow(-2, c, 1).narrow(-1, c, 1)}, -1);
    return at::cat({top, marker, last}, -2);
  }
};

namespace {

/// Log-likelihoods, up to what does not depend on lambda in the restricted one.
Tensor log_likelihood(const Swept& swept, const Tensor& weights, double fixed_effects, bool restricted) {
  const auto log_det_h = -weights.log().sum(-1);
  const auto rows = static_cast<double>(weights.size(-1)), freedom = restricted ? rows - fixed_effects : rows;
  auto value = log_likelihood_constant(freedom) - 0.5 * log_det_h - 0.5 * freedom * swept.residual.log();
  return restricted ? value - 0.5 * swept.log_det : value;
}

}  // namespace

MixedModel::MixedModel(const Tensor& relatedness, const Tensor& covariates) {
  check_relatedness(relatedness, "mixed model");
  auto matrix = in_float64(relatedness);
  const auto rows = matrix.size(0);
  matrix = (matrix + matrix.t()) / 2;
  const auto mean = matrix.mean(0, /*keepdim=*/true);
  matrix = matrix - mean - mean.t() + mean.mean();
  auto all = at::ones({rows, 1}, torch::kFloat64);
  if (covariates.defined()) {
    check(covariates.dim() == 2 && covariates.size(0) == rows, "mixed model: expected covariates of shape (", rows,
          ", C) as the relatedness matrix has ", rows, " rows, got ", covariates.sizes());
    all = at::cat({all, in_float64(covariates)}, 1);
    check(at::isfinite(all).all().item<bool>(), "mixed model: the covariates hold values that are not finite");
  }
  check(rows > all.size(1) + 2, "mixed model: ", rows, " individuals are too few for ", all.size(1),
        " covariates with the intercept");
  const auto singular = std::get<1>(at::linalg_svd(all / all.norm(2, {0}, true).clamp_min(1e-300), false));
  check(singular.min().item<double>() > 1e-7 * singular.max().item<double>(),
        "mixed model: the covariates are linearly dependent (the intercept, which is always there, among them)");
  std::tie(eigenvalues_, eigenvectors_) = at::linalg_eigh(matrix);
  const auto largest = eigenvalues_.max().item<double>();
  check(largest > 0, "mixed model: the relatedness matrix is zero once it is centred: nobody is related");
  check(eigenvalues_.min().item<double>() > -0.05 * largest, "mixed model: the relatedness matrix has the eigenvalue ",
        eigenvalues_.min().item<double>(), "; it is no covariance");
  eigenvalues_ = eigenvalues_.clamp_min(0);
  covariates_ = eigenvectors_.t().matmul(all);
}

MixedModel::Fixed MixedModel::fixed(const Tensor& phenotype) const {
  check(phenotype.dim() == 1 && phenotype.size(0) == individuals(), "mixed model: expected a phenotype of shape (",
        individuals(), ") as the relatedness matrix has ", individuals(), " rows, got ", phenotype.sizes());
  const auto y = in_float64(phenotype);
  check(at::isfinite(y).all().item<bool>(), "mixed model: the phenotype holds values that are not finite");
  check(y.min().item<double>() < y.max().item<double>(), "mixed model: the phenotype is the same for all");
  Fixed fixed;
  fixed.columns = at::cat({covariates_, eigenvectors_.t().matmul(y).unsqueeze(1)}, 1);
  fixed.covariates = covariates_.size(1);
  fixed.eigenvalues = eigenvalues_;
  fixed.pairs = (fixed.columns.unsqueeze(2) * fixed.columns.unsqueeze(1)).flatten(1);
  return fixed;
}

Tensor MixedModel::rotated(const Tensor& dosages) const {
  check(dosages.dim() == 2 && dosages.size(0) == individuals(), "mixed model: expected markers of shape (",
        individuals(), ", M), got ", dosages.sizes());
  check(at::isfinite(dosages).all().item<bool>(), "mixed model: the markers hold values that are not finite");
  return in_float64(dosages).t().matmul(eigenvectors_);
}

Tensor MixedModel::best_lambda(const Fixed& fixed, const Tensor& markers, bool restricted) const {
  const bool marker = markers.defined();
  const auto effects = static_cast<double>(fixed.covariates + (marker ? 1 : 0));
  const auto grid = at::linspace(lowest, highest, grid_points, torch::kFloat64);
  const auto on_grid = weights_at(grid, eigenvalues_);
  const auto products = marker ? fixed.products_on_grid(on_grid, markers) : fixed.products(on_grid).unsqueeze(0);
  const auto values = log_likelihood(sweep(products, fixed.covariates, marker), on_grid, effects, restricted);
  return maximised(grid, values,
                   [&](const Tensor& log_lambda) {
                     const auto weights = weights_at(log_lambda, eigenvalues_);
                     const auto here = marker ? fixed.products(weights, markers) : fixed.products(weights);
                     return log_likelihood(sweep(here, fixed.covariates, marker), weights, effects, restricted);
                   })
      .exp();
}

MixedModel::Null MixedModel::null(const Tensor& phenotype) const {
  const auto all = fixed(phenotype);
  const auto effects = static_cast<double>(all.covariates);
  const auto value = [&](double lambda, bool restricted) {
    const auto weights = (lambda * eigenvalues_ + 1).reciprocal().unsqueeze(0);
    return log_likelihood(sweep(all.products(weights), all.covariates, false), weights, effects, restricted)
        .item<double>();
  };
  Null null;
  null.lambda_reml = best_lambda(all, {}, true).item<double>();
  null.lambda_ml = best_lambda(all, {}, false).item<double>();
  const auto unweighted = sweep(all.products(at::ones({1, individuals()}, torch::kFloat64)), all.covariates, false);
  null.log_likelihood_reml = value(null.lambda_reml, true) + 0.5 * unweighted.log_det.item<double>();
  null.log_likelihood_ml = value(null.lambda_ml, false);

  const double lambda = null.lambda_reml, mean = eigenvalues_.mean().item<double>();
  const double step = 1e-3 * lambda;
  const double curvature =
      (value(lambda + step, true) - 2 * value(lambda, true) + value(lambda - step, true)) / (step * step);
  null.variance_explained = lambda * mean / (1 + lambda * mean);
  null.standard_error =
      mean / ((1 + lambda * mean) * (1 + lambda * mean)) * std::sqrt(curvature < 0 ? -1 / curvature : std::nan(""));
  return null;
}

MixedModel::Associations MixedModel::associate(const Tensor& phenotype, const Tensor& markers,
                                               Strength strength) const {
  check(markers.dim() == 2 && markers.size(1) == individuals(), "mixed model: expected rotated markers of shape (M, ",
        individuals(), "), got ", markers.sizes());
  const auto all = fixed(phenotype);
  const auto without = null(phenotype);
  const auto effects = static_cast<double>(all.covariates + 1);
  const auto rows = static_cast<double>(individuals()), freedom = rows - effects;
  check(freedom > 0, "mixed model: too few individuals");
  const bool anew = strength == Strength::for_each_marker;
  const auto shared = [&](double lambda, const Tensor& some) {
    const auto weights = (lambda * eigenvalues_ + 1).reciprocal().unsqueeze(0);
    const auto swept = sweep(all.products_on_grid(weights, some).squeeze(1), all.covariates, true);
    return std::pair{swept, weights};
  };
  const auto at_lambda = [&](const Tensor& lambda, const Tensor& some) {
    const auto weights = weights_at(lambda.log(), eigenvalues_);
    return std::pair{sweep(all.products(weights, some), all.covariates, true), weights};
  };

  const auto count = markers.size(0);
  const auto column = [&] { return at::empty({count}, torch::kFloat64); };
  Associations found{column(), column(), column(), column(), column(), column(), column()};
  for (int64_t begin = 0; begin < count; begin += markers_at_once) {
    const auto size = std::min(markers_at_once, count - begin);
    const auto some = markers.narrow(0, begin, size);
    const auto lambda_reml =
        anew ? best_lambda(all, some, true) : at::zeros({size}, torch::kFloat64).fill_(without.lambda_reml);
    const auto lambda_ml =
        anew ? best_lambda(all, some, false) : at::zeros({size}, torch::kFloat64).fill_(without.lambda_ml);
    const auto [wald, wald_weights] = anew ? at_lambda(lambda_reml, some) : shared(without.lambda_reml, some);
    const auto at_null = shared(without.lambda_ml, some);
    const auto& score = at_null.first;
    const auto [full, full_weights] = anew ? at_lambda(lambda_ml, some) : at_null;
    const auto put = [&](Tensor& into, const Tensor& values) { into.narrow(0, begin, size).copy_(values); };
    put(found.effect, wald.xy / wald.xx);
    put(found.standard_error, (wald.residual / (freedom * wald.xx)).sqrt());
    put(found.lambda_reml, lambda_reml);
    put(found.lambda_ml, lambda_ml);
    // Statistics first; they become p-values below.
    put(found.wald, (wald.yy - wald.residual) * freedom / wald.residual);
    put(found.likelihood_ratio,
        2 * (log_likelihood(full, full_weights, effects, false) - without.log_likelihood_ml).clamp_min(0));
    put(found.score, rows * score.xy.square() / (score.xx * score.yy));
  }
  auto* wald = found.wald.data_ptr<double>();
  auto* ratio = found.likelihood_ratio.data_ptr<double>();
  auto* score = found.score.data_ptr<double>();
  for (int64_t i = 0; i < count; ++i) {
    wald[i] = f_tail(wald[i], 1, freedom);
    ratio[i] = chi_squared_tail(ratio[i]);
    score[i] = f_tail(score[i], 1, freedom);
  }
  return found;
}

}  // namespace diffeo
