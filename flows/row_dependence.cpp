#include "diffeo/flows/row_dependence.h"

#include <ATen/ops/_unique2.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "diffeo/data/relatedness.h"
#include "diffeo/layers/base/error.h"

namespace diffeo {
namespace {

const double log_two_pi = std::log(2 * std::numbers::pi);

void check_rows(const Tensor& z, const Tensor& numbers, const char* what) {
  check(z.dim() == 2 && numbers.dim() == 1 && numbers.size(0) == z.size(0) && z.size(0) > 0,
        "dependent rows: expected latent rows (B, D) and ", what, " (B), got ", z.sizes(), " and ", numbers.sizes());
  check(numbers.scalar_type() == torch::kInt64, "dependent rows: ", what, " are integers, got ", numbers.scalar_type());
}

Tensor places_on(const Tensor& z, const Tensor& places, int64_t rows) {
  check_rows(z, places, "places");
  const auto lowest = places.min().item<int64_t>(), highest = places.max().item<int64_t>();
  check(lowest >= 0 && highest < rows, "dependent rows: a batch has row ", lowest < 0 ? lowest : highest,
        ", but the structure is of ", rows, " rows");
  return places.to(z.device());
}

/// By how much pairs of rows of a batch of B out of n are too rare.
double pair_weight(int64_t rows, int64_t batch) {
  return batch > 1 ? static_cast<double>(rows - 1) / static_cast<double>(batch - 1) : 0;
}

/// Numbers of groups from 0, and their sizes.
std::pair<Tensor, Tensor> numbered(const Tensor& groups) {
  auto [values, inverse, counts] = at::_unique2(groups, true, true, true);
  return {inverse, counts};
}

/// log det C of groups of the sizes m (G), summed, and the entries of C^-1 on and off the diagonal of each.
struct GroupEntries {
  Tensor log_det, diagonal, beside;
};
GroupEntries entries(const Tensor& m, const Tensor& s) {
  const auto rest = 1 - s, whole = 1 + (m - 1) * s;
  return {(whole.log() + (m - 1) * rest.log()).sum(), (1 + (m - 2) * s) / (rest * whole), -s / (rest * whole)};
}

}  // namespace

GroupedRows::GroupedRows(const Tensor& groups) {
  check(groups.dim() == 1 && groups.size(0) > 0 && !groups.is_floating_point(),
        "groups: expected integers of shape (n), got ", groups.scalar_type(), " ", groups.sizes());
  std::tie(group_, sizes_) = numbered(groups);
}

RowDependence::Ptr GroupedRows::to(const torch::TensorOptions& options) const {
  auto moved = std::make_shared<GroupedRows>(*this);
  moved->group_ = group_.to(options.device());
  moved->sizes_ = sizes_.to(options.device());
  return moved;
}

RowDependence::Likelihood GroupedRows::estimate(const Tensor& z, const Tensor& places) const {
  const auto group = group_.index_select(0, places_on(z, places, rows()));
  const auto sizes = sizes_.to(z.scalar_type());
  const auto features = static_cast<double>(z.size(1)), batch = static_cast<double>(z.size(0));
  const auto squares = at::zeros({groups()}, z.options().requires_grad(false)).index_add(0, group, z.square().sum(1));
  const auto sums = at::zeros({groups(), z.size(1)}, z.options().requires_grad(false)).index_add(0, group, z);
  // Sums over pairs of different rows, as often as they would come.
  const auto pairs = pair_weight(rows(), z.size(0)) * (sums.square().sum(1) - squares);
  return [=, rows = static_cast<double>(rows())](const Tensor& s) {
    const auto [log_det, diagonal, beside] = entries(sizes, s);
    const auto quadratic = (diagonal * squares + beside * pairs).sum() / batch;
    return -0.5 * (features * log_two_pi + features / rows * log_det + quadratic);
  };
}

RowDependence::Likelihood GroupedRows::of_whole_groups(const Tensor& z, const Tensor& groups) {
  check_rows(z, groups, "groups");
  const auto [group, counts] = numbered(groups.to(z.device()));
  const auto m = counts.to(z.scalar_type());
  const auto features = static_cast<double>(z.size(1)), rows = static_cast<double>(z.size(0));
  const auto zeros = at::zeros({m.size(0), z.size(1)}, z.options().requires_grad(false));
  const auto means = zeros.index_add(0, group, z) / m.unsqueeze(1);
  const auto within = (z - means.index_select(0, group)).square().sum();
  const auto between = m * means.square().sum(1);
  return [=](const Tensor& s) {
    const auto whole = 1 + (m - 1) * s;
    const auto log_det = (whole.log() + (m - 1) * (1 - s).log()).sum();
    return -0.5 * (features * log_two_pi + (features * log_det + within / (1 - s) + (between / whole).sum()) / rows);
  };
}

RelatedRows::RelatedRows(Tensor eigenvalues, Tensor eigenvectors)
    : eigenvalues_(std::move(eigenvalues)), eigenvectors_(std::move(eigenvectors)) {}

std::shared_ptr<const RelatedRows> RelatedRows::of_matrix(const Tensor& matrix) {
  auto k = matrix.detach().to(torch::kCPU, torch::kFloat64);
  check_relatedness(k, "relatedness");
  check((k.diagonal() > 0).all().item<bool>(), "relatedness: the matrix has a diagonal entry that is not positive");
  const auto scale = k.diagonal().rsqrt();
  k = k * scale.unsqueeze(0) * scale.unsqueeze(1);
  auto [values, vectors] = at::linalg_eigh((k + k.t()) / 2);
  check(values.min().item<double>() > -0.05 * values.max().item<double>(),
        "relatedness: the matrix has the eigenvalue ", values.min().item<double>(),
        " once its diagonal is 1; it is no covariance");
  return std::shared_ptr<const RelatedRows>(new RelatedRows(values.clamp_min(0), vectors.contiguous()));
}

std::shared_ptr<const RelatedRows> RelatedRows::of_factor(const Tensor& factor) {
  check(factor.dim() == 2 && factor.size(0) > 0 && factor.size(1) > 0,
        "relatedness: expected a factor of shape (n, r), got ", factor.sizes());
  check(at::isfinite(factor).all().item<bool>(), "relatedness: the factor holds values that are not finite");
  const auto l = factor.detach().to(torch::kCPU, torch::kFloat64);
  const auto norms = l.norm(2, {1}, true);
  check((norms > 0).all().item<bool>(), "relatedness: the factor has a row of zeros");
  auto [vectors, singular, right] = at::linalg_svd(l / norms, /*full_matrices=*/false);
  return std::shared_ptr<const RelatedRows>(new RelatedRows(singular.square(), vectors.contiguous()));
}

RowDependence::Ptr RelatedRows::to(const torch::TensorOptions& options) const {
  return std::shared_ptr<const RelatedRows>(new RelatedRows(eigenvalues_.to(options), eigenvectors_.to(options)));
}

RowDependence::Likelihood RelatedRows::estimate(const Tensor& z, const Tensor& places) const {
  const auto options = z.options().requires_grad(false);
  const auto place = places_on(z, places, rows());
  const auto values = eigenvalues_.to(options);
  const auto vectors = eigenvectors_.to(options);
  const auto features = static_cast<double>(z.size(1)), batch = static_cast<double>(z.size(0));
  const double pairs = pair_weight(rows(), z.size(0));
  // With q the batch's rows of the eigenvectors, sum_ij C^-1_ij <z_i, z_j> is a sum over eigenvectors k of
  // |(q^T z)_k|^2 / v_k, and its part with i = j one of sum_i q_ik^2 |z_i|^2 / v_k.
  const auto square = z.square().sum(1);
  Tensor along;
  if (z.size(0) == rows()) {  // the rows are put in order, not the eigenvectors, which are many more numbers
    along = vectors.t().matmul(at::zeros_like(z).index_copy(0, place, z)).square().sum(1);
  } else {
    const auto here = vectors.index_select(0, place);
    along = pairs * here.t().matmul(z).square().sum(1) + (1 - pairs) * here.square().t().matmul(square);
  }
  const auto rest_rows = static_cast<double>(rows() - values.size(0));
  const auto total = square.sum();
  return [=, rows = static_cast<double>(rows())](const Tensor& s) {
    const auto v = 1 - s + s * values, rest = 1 - s;
    auto log_det = v.log().sum();
    auto weights = v.reciprocal();
    Tensor quadratic;
    if (rest_rows > 0) {  // the directions that a factor of low rank leaves have the eigenvalue 1 - s
      log_det = log_det + rest_rows * rest.log();
      quadratic = ((weights - rest.reciprocal()) * along).sum() + total / rest;
    } else {
      quadratic = (weights * along).sum();
    }
    return -0.5 * (features * log_two_pi + features / rows * log_det + quadratic / batch);
  };
}

double best_strength(const RowDependence::Likelihood& likelihood, const Tensor& like) {
  torch::NoGradGuard no_grad;
  const auto value = [&](double strength) {
    const double found = likelihood(at::full({}, strength, like.options().requires_grad(false))).item<double>();
    return std::isfinite(found) ? found : -std::numeric_limits<double>::infinity();
  };
  constexpr int points = 20;
  const double step = RowDependence::most / points;
  int best = 0;
  std::vector<double> values;
  for (int i = 0; i <= points; ++i) {
    values.push_back(value(i * step));
    if (values[i] > values[best]) best = i;
  }
  constexpr double golden = 0.6180339887498949;
  double low = std::max(best - 1, 0) * step, high = std::min(best + 1, points) * step;
  double left = high - golden * (high - low), right = low + golden * (high - low);
  double at_left = value(left), at_right = value(right);
  while (high - low > 1e-4) {
    if (at_left > at_right) {
      high = right, right = left, at_right = at_left;
      at_left = value(left = high - golden * (high - low));
    } else {
      low = left, left = right, at_left = at_right;
      at_right = value(right = low + golden * (high - low));
    }
  }
  const double inside = (low + high) / 2;
  return value(inside) > values[best] ? inside : best * step;
}

}  // namespace diffeo
