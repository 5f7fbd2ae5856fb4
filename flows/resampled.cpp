#include "diffeo/flows/resampled.h"

#include <ATen/ops/_sobol_engine_draw.h>
#include <ATen/ops/_sobol_engine_initialize_state.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/special_ndtri.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "diffeo/flows/normal.h"

namespace diffeo {
namespace {

constexpr int64_t log2_points = 16;
constexpr double least_normaliser = 1e-6;

/// 2^16 standard normal points (n, D), spread evenly, the same each time.
Tensor even_normals(int64_t features) {
  const int64_t points = 1 << log2_points;
  auto directions = at::zeros({features, 30}, at::kLong);
  at::_sobol_engine_initialize_state_(directions, features);
  const auto start = at::zeros({features}, at::kLong);
  // The engine leaves out the first point, the origin.
  const auto rest = std::get<0>(at::_sobol_engine_draw(start, points - 1, directions, features, 0, at::kDouble));
  const auto uniform = at::cat({at::zeros({1, features}, at::kDouble), rest});
  // The points lie on a grid that includes 0: to the middle of its cells.
  return at::special_ndtri(uniform + 0.5 / static_cast<double>(points));
}

}  // namespace

Resampled::Resampled(const Options& options)
    : Distribution(Space::reals(at_least(1, "features", options.features))), options_(options) {
  at_least(2, "truncation", options.truncation);
  at_least(1, "samples", options.samples);
  if (!(options.momentum > 0 && options.momentum <= 1))
    throw SpecError("momentum", c10::str("must be in (0, 1], got ", options.momentum));
  net_ = within("net", [&] { return build_net(options.net, options.features, 0, 1); });
  register_module("net", net_);
  normaliser_ = register_buffer("normaliser", at::full({}, -1.0));
  exact_ = register_buffer("exact", at::zeros({}, at::kLong));
}

void Resampled::update_normaliser() {
  torch::NoGradGuard no_grad;
  auto sum = at::zeros({}, tensor_options().dtype(at::kDouble));
  for (const auto& part : even_normals(options_.features).split(8192))
    sum += at::sigmoid(logit(part.to(tensor_options()))).sum(at::kDouble);
  normaliser_.copy_(sum / static_cast<double>(1 << log2_points));
  exact_.fill_(1);
}

Tensor Resampled::normaliser() {
  if (!is_training()) {
    if (exact_.item<int64_t>() == 0) update_normaliser();
    return normaliser_;
  }
  const auto proposals = at::randn({options_.samples, options_.features}, tensor_options());
  const auto estimate = at::sigmoid(logit(proposals)).mean();
  {
    torch::NoGradGuard no_grad;
    const auto average = at::where(normaliser_ < 0, estimate, normaliser_.lerp(estimate, options_.momentum));
    normaliser_.copy_(at::where(average.isfinite(), average, normaliser_));
    exact_.zero_();
  }
  return normaliser_.clone() + (estimate - estimate.detach());
}

Tensor Resampled::evaluate(const Tensor& z, const Tensor&) {
  const auto normaliser = this->normaliser().clamp(least_normaliser, 1 - least_normaliser);
  const auto log_alpha = static_cast<double>(options_.truncation - 1) * at::log1p(-normaliser);
  const auto log_accepted = at::log_sigmoid(logit(z)) + (-at::expm1(log_alpha)).log() - normaliser.log();
  return standard_normal_log_prob(z) + at::logaddexp(log_accepted, log_alpha);
}

Drawn Resampled::simulate(at::IntArrayRef batch, const Tensor&) {
  auto shape = batch.vec();
  shape.push_back(options_.features);
  auto z = at::randn(shape, tensor_options());
  {
    torch::NoGradGuard no_grad;
    auto rows = z.view({-1, options_.features});
    auto left = at::full({rows.size(0)}, true, rows.options().dtype(at::kBool)).nonzero().squeeze(1);
    // What is left after the last round keeps its newest proposal, the T-th.
    for (int64_t tried = 1; tried < options_.truncation && left.size(0) > 0; ++tried) {
      const auto accepts = at::sigmoid(logit(rows.index_select(0, left)));
      left = left.masked_select(at::rand_like(accepts) >= accepts);
      rows.index_copy_(0, left, at::randn({left.size(0), options_.features}, rows.options()));
    }
  }
  return {z, evaluate(z, {})};
}

DIFFEO_DISTRIBUTION(resampled, Resampled, "Normal with learned rejection (Stimper et al. 2022).",
    {"one_feature", {{"features", 1}, {"net", {{"width", 8}, {"activation", "tanh"}, {"init_scale", 3.0}}}}},
    {"truncated", {{"features", 2}, {"truncation", 3},
                   {"net", {{"width", 8}, {"activation", "tanh"}, {"init_scale", 3.0}}}}});

}  // namespace diffeo
