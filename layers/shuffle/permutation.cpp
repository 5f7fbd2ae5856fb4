#include "diffeo/layers/shuffle/permutation.h"

#include <ATen/ops/tensor.h>

#include <numbers>
#include <numeric>

#include "diffeo/layers/base/random_order.h"
#include "diffeo/layers/base/registry.h"
#include "diffeo/layers/shuffle/reordered.h"

namespace diffeo {
namespace {

Axis axis_of(const Json& axis) {
  if (axis.is_null()) return {};
  if (axis == "circle") return {-std::numbers::pi, std::numbers::pi, true};
  const auto is_end = [](const Json& end) { return end.is_null() || end.is_number(); };
  if (!axis.is_array() || axis.size() != 2 || !is_end(axis[0]) || !is_end(axis[1]))
    throw SpecError("axis", c10::str("expected null, [lower, upper] or \"circle\", got ", axis.dump()));
  Axis result;
  if (axis[0].is_number()) result.lower = axis[0].get<double>();
  if (axis[1].is_number()) result.upper = axis[1].get<double>();
  if (!(result.lower < result.upper)) throw SpecError("axis", c10::str("expected lower < upper, got ", axis.dump()));
  return result;
}

Space space_of(const Permutation::Options& options) {
  return Space::product(std::vector<Axis>(at_least(1, "features", options.features), axis_of(options.axis)));
}

std::vector<int64_t> order_of(const Permutation::Options& options) {
  const auto features = options.features;
  check_choice("kind", options.kind, {"reverse", "random", "fixed"});
  if (options.kind != "fixed" && !options.order.empty())
    throw SpecError("order", c10::str("is only for kind fixed, not ", options.kind));
  if (options.kind == "random") return random_order(features, options.seed);
  auto order = std::vector<int64_t>(features);
  std::iota(order.rbegin(), order.rend(), 0);
  if (options.kind == "reverse") return order;
  auto sorted = options.order;
  std::sort(sorted.rbegin(), sorted.rend());
  if (sorted != order)
    throw SpecError("order",
                    c10::str("expected each of 0 ... ", features - 1, " once, got ", Json(options.order).dump()));
  return options.order;
}

}  // namespace

Permutation::Permutation(const Options& options) : Layer(space_of(options)), options_(options) {
  const auto order = order_of(options);
  order_ = register_buffer("order", at::tensor(order));
  inverse_order_ = register_buffer("inverse_order", at::tensor(inverse_order(order)));
}

Mapped Permutation::map(const Tensor& x, const Tensor&) {
  return {reordered(x, order_, inverse_order_), x.new_zeros(x.sizes().slice(0, x.dim() - 1))};
}

Mapped Permutation::unmap(const Tensor& y, const Tensor&) {
  return {reordered(y, inverse_order_, order_), y.new_zeros(y.sizes().slice(0, y.dim() - 1))};
}

Scored Permutation::carry_score(const Tensor& points, const Tensor& score, const Tensor& context, Direction direction) {
  const bool forward = direction == Direction::forward;
  const auto [value, log_det] = forward ? map(points, context) : unmap(points, context);
  return {value, log_det, score.index_select(-1, forward ? order_ : inverse_order_)};
}

DIFFEO_LAYER(permutation, Permutation, "The features in another order.", "y_i = x_order(i), log|det| = 0", "D both ways", {"reverse", {{"features", 3}}},
             {"random", {{"features", 5}, {"kind", "random"}, {"seed", 1}}},
             {"fixed", {{"features", 3}, {"kind", "fixed"}, {"order", {2, 0, 1}}}},
             {"bounded", {{"features", 2}, {"axis", {0.0, 1.0}}}},
             {"half_bounded", {{"features", 3}, {"axis", {0.0, nullptr}}}},
             {"circular", {{"features", 3}, {"axis", "circle"}}});

}  // namespace diffeo
