#include "diffeo/layers/preprocessing/standardize.h"

#include <ATen/ops/full.h>

#include <cmath>

#include "diffeo/layers/base/ranges.h"
#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

void check_options(const Standardize::Options& options) {
  at_least(1, "features", options.features);
  const auto check_size = [&](const char* name, size_t size) {
    if (static_cast<int64_t>(size) != options.features)
      throw SpecError(name, c10::str("expected ", options.features, " items, one for each feature, got ", size));
  };
  check_size("shift", options.shift.size());
  check_size("scale", options.scale.size());
  if (!options.domain.empty()) check_size("domain", options.domain.size());
  for (int64_t i = 0; i < options.features; ++i) {
    const auto at = [&](const char* name) { return c10::str(name, "/", i); };
    finite(at("shift"), options.shift[i]);
    if (!(options.scale[i] > 0) || !std::isfinite(options.scale[i]))
      throw SpecError(at("scale"), c10::str("must be above 0 and finite, got ", options.scale[i],
                                            "; a constant column has no scale of its own: give it 1 or leave it out"));
  }
}

/// `[lower, upper]`, either of them null where it is infinite.
Axis axis_of(const Json& item, const std::string& where) {
  const auto is_end = [](const Json& end) { return end.is_null() || end.is_number(); };
  if (!item.is_array() || item.size() != 2 || !is_end(item[0]) || !is_end(item[1]))
    throw SpecError(where, c10::str("expected [lower, upper], with null for an infinite end, got ", item.dump()));
  Axis axis;
  if (item[0].is_number()) axis.lower = item[0].get<double>();
  if (item[1].is_number()) axis.upper = item[1].get<double>();
  if (!(axis.lower < axis.upper)) throw SpecError(where, c10::str("lower must be below upper, got ", item.dump()));
  return axis;
}

std::vector<Axis> axes_of(const Standardize::Options& options) {
  check_options(options);
  std::vector<Axis> axes(options.features);
  for (size_t i = 0; i < options.domain.size(); ++i) axes[i] = axis_of(options.domain[i], c10::str("domain/", i));
  return axes;
}

std::vector<Axis> standardized_axes_of(const Standardize::Options& options) {
  auto axes = axes_of(options);
  for (size_t i = 0; i < axes.size(); ++i) {
    axes[i].lower = (axes[i].lower - options.shift[i]) / options.scale[i];
    axes[i].upper = (axes[i].upper - options.shift[i]) / options.scale[i];
  }
  return axes;
}

}  // namespace

Standardize::Standardize(const Options& options)
    : ExactLayer(Space::product(axes_of(options)), Space::product(standardized_axes_of(options))),
      options_(options),
      shift_(register_exact("shift", options.shift)),
      scale_(register_exact("scale", options.scale)) {
  for (const double scale : options.scale) log_scale_ += std::log(scale);
}

Mapped Standardize::map(const Tensor& x, const Tensor&) {
  return {(x - shift_) / scale_, at::full({}, -log_scale_, x.options()).expand(x.sizes().slice(0, x.dim() - 1))};
}

Mapped Standardize::unmap(const Tensor& y, const Tensor&) {
  return {y * scale_ + shift_, at::full({}, log_scale_, y.options()).expand(y.sizes().slice(0, y.dim() - 1))};
}

DIFFEO_LAYER(standardize, Standardize, "Takes a fixed shift off each feature and divides it by a fixed scale.", "y = (x - shift) / scale, log|det| = -sum_i log scale_i", "D both ways",
             {"plain", {{"features", 3}, {"shift", {0.1, -2.0, 30.0}}, {"scale", {0.5, 3.0, 7.0}}}},
             {"bounded", Json::parse(R"({"features": 3, "shift": [0.5, 1.0, 0.0], "scale": [0.25, 2.0, 3.0],
                                "domain": [[0, 1], [null, null], [-1, null]]})")});

}  // namespace diffeo
