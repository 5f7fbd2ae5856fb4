#include "diffeo/flows/uniform.h"

#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <limits>

namespace diffeo {
namespace {

std::vector<double> ends_of(const char* name, const Json& given, int64_t features) {
  if (given.is_number()) return std::vector<double>(features, given.get<double>());
  const auto ends = value_of<std::vector<double>>(given, name);
  if (static_cast<int64_t>(ends.size()) != features)
    throw SpecError(name, c10::str("expected a number or a list of ", features, ", got ", given.dump()));
  return ends;
}

Space space_of(const Uniform::Options& options) {
  const auto features = at_least(1, "features", options.features);
  const auto lower = ends_of("lower", options.lower, features), upper = ends_of("upper", options.upper, features);
  std::vector<Axis> axes;
  for (int64_t i = 0; i < features; ++i) {
    if (!(lower[i] < upper[i] && std::isfinite(upper[i] - lower[i])))
      throw SpecError("upper", c10::str("must be above lower, got [", lower[i], ", ", upper[i], "] for feature ", i));
    axes.push_back({lower[i], upper[i], options.circular});
  }
  return Space::product(axes);
}

}  // namespace

Uniform::Uniform(const Options& options) : Distribution(space_of(options)), options_(options), log_volume_(0) {
  for (const auto& axis : space().axes) {
    lower_.push_back(axis.lower);
    upper_.push_back(axis.upper);
    log_volume_ += std::log(axis.upper - axis.lower);
  }
}

Tensor Uniform::evaluate(const Tensor& x, const Tensor&) {
  const double rounding = x.scalar_type() == at::kDouble ? 1e-15 : 5e-7;
  const auto lower = at::tensor(lower_, x.options()), upper = at::tensor(upper_, x.options());
  const auto slack = rounding * (lower.abs() + upper.abs());
  const auto inside = (x >= lower - slack).logical_and(x <= upper + slack).all(-1);
  const auto density = at::full(inside.sizes(), -log_volume_, x.options());
  return density.masked_fill(inside.logical_not(), -std::numeric_limits<double>::infinity());
}

Drawn Uniform::simulate(at::IntArrayRef batch, const Tensor&) {
  auto shape = batch.vec();
  shape.push_back(options_.features);
  const auto lower = at::tensor(lower_, tensor_options()), upper = at::tensor(upper_, tensor_options());
  return {lower + (upper - lower) * at::rand(shape, tensor_options()), at::full(batch, -log_volume_, tensor_options())};
}

DIFFEO_DISTRIBUTION(uniform, Uniform, "Uniform on a box or a torus.",
    {"one_feature", {{"features", 1}}},
    {"box", {{"features", 2}, {"lower", {-1.0, 2.0}}, {"upper", 3.5}}},
    {"torus", {{"features", 2}, {"lower", -3.141592653589793}, {"upper", 3.141592653589793}, {"circular", true}}});

}  // namespace diffeo
