#include "diffeo/layers/preprocessing/transform.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/nextafter.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tensor.h>

#include <cmath>

#include "diffeo/layers/base/inside.h"
#include "diffeo/layers/base/random_order.h"
#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::vector<Axis> axes_of(const Transform::Options& options) {
  at_least(1, "features", options.features);
  const auto check_size = [&](const char* name, size_t size) {
    if (static_cast<int64_t>(size) != options.features)
      throw SpecError(name, c10::str("expected ", options.features, " items, one for each feature, got ", size));
  };
  check_size("kinds", options.kinds.size());
  if (!options.lower.empty()) check_size("lower", options.lower.size());
  if (!options.upper.empty()) check_size("upper", options.upper.size());
  std::vector<Axis> axes(options.features);
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto& kind = options.kinds[i];
    check_choice(c10::str("kinds/", i), kind, {"none", "log", "logit"});
    if (kind == "none") continue;
    axes[i].lower = options.lower.empty() ? 0 : options.lower[i];
    if (!std::isfinite(axes[i].lower))
      throw SpecError(c10::str("lower/", i), c10::str("must be finite, got ", axes[i].lower));
    if (kind == "log") continue;
    axes[i].upper = options.upper.empty() ? 1 : options.upper[i];
    if (!std::isfinite(axes[i].upper) || !(axes[i].upper > axes[i].lower))
      throw SpecError(c10::str("upper/", i),
                      c10::str("must be finite and above lower (", axes[i].lower, "), got ", axes[i].upper));
  }
  return axes;
}

}  // namespace

Transform::Transform(const Options& options)
    : ExactLayer(Space::product(axes_of(options)), Space::reals(options.features)), options_(options) {
  std::vector<double> lower, upper;
  for (const auto& axis : domain().axes) lower.push_back(axis.lower), upper.push_back(axis.upper);
  lower_ = register_exact("lower", lower);
  upper_ = register_exact("upper", upper);
  std::vector<int64_t> all;
  const auto columns = [&](const char* name, const char* kind) {
    std::vector<int64_t> group;
    for (size_t i = 0; i < options.kinds.size(); ++i)
      if (options.kinds[i] == kind) group.push_back(static_cast<int64_t>(i));
    all.insert(all.end(), group.begin(), group.end());
    return register_buffer(name, at::tensor(group, at::kLong));
  };
  plain_ = columns("plain", "none");
  log_ = columns("log", "log");
  logit_ = columns("logit", "logit");
  order_ = register_buffer("order", at::tensor(inverse_order(all)));
}

void Transform::check_inside(const Tensor& x) const {
  const auto bad = (x > lower_).logical_and(x < upper_).logical_not();
  if (!bad.any().item<bool>()) return;
  const auto [row, column] = first_of(bad);
  throw Error(c10::str("transform: value ", x.reshape({-1, x.size(-1)})[row][column].item<double>(), " in row ", row,
                       ", column ", column, " does not lie inside of ", to_string(domain().axes[column]), ", as '",
                       options_.kinds[column], "' needs; set wider ends or another kind"));
}

Tensor Transform::joined(const Tensor& plain, const Tensor& log, const Tensor& logit) const {
  return at::cat({plain, log, logit}, -1).index_select(-1, order_);
}

Mapped Transform::map(const Tensor& x, const Tensor&) {
  check_inside(x);
  const auto above = (x.index_select(-1, log_) - lower_.index_select(0, log_)).log();
  // Logarithms of the distances to both ends: each is exact near its own end.
  const auto lower = lower_.index_select(0, logit_), upper = upper_.index_select(0, logit_);
  const auto inner = x.index_select(-1, logit_);
  const auto low = (inner - lower).log(), high = (upper - inner).log();
  return {joined(x.index_select(-1, plain_), above, low - high),
          ((upper - lower).log() - low - high).sum(-1) - above.sum(-1)};
}

Mapped Transform::unmap(const Tensor& y, const Tensor&) {
  const auto above = y.index_select(-1, log_), inner = y.index_select(-1, logit_);
  const auto lower = lower_.index_select(0, logit_), width = upper_.index_select(0, logit_) - lower;
  auto x = joined(y.index_select(-1, plain_), lower_.index_select(0, log_) + above.exp(),
                  lower + width * at::sigmoid(inner));
  // Rounding must not put a sample on an end, where its density could not be evaluated.
  x = at::maximum(x, at::nextafter(lower_, at::full_like(lower_, infinity)));
  x = at::minimum(x, at::nextafter(upper_, at::full_like(upper_, -infinity)));
  return {x, (width.log() + at::log_sigmoid(inner) + at::log_sigmoid(-inner)).sum(-1) + above.sum(-1)};
}

DIFFEO_LAYER(transform, Transform, "Brings bounded columns to the line by logarithms and logits.", "y_i = log(x_i - a), log(b - x_i) or log(x_i - a) - log(b - x_i), log|det| = sum_i log|y_i'|", "D both ways",
             {"mixed",
              {{"features", 4},
               {"kinds", {"logit", "none", "log", "logit"}},
               {"lower", {0.0, 0.0, -1.0, -2.0}},
               {"upper", {1.0, 0.0, 0.0, 3.0}}}},
             {"logs", {{"features", 2}, {"kinds", {"log", "log"}}}});

}  // namespace diffeo
