#include "diffeo/layers/base/space.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "diffeo/layers/base/options.h"

namespace diffeo {
namespace {

bool same_end(double a, double b) {
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::abs(a - b) <= 1e-6 * std::max({1.0, std::abs(a), std::abs(b)});
}

/// A number in a damaged or hostile spec asks for no memory.
constexpr int64_t most_features = int64_t{1} << 26;

std::vector<Axis> alike(int64_t features, const Axis& axis) {
  if (features < 0 || features > most_features)
    throw SpecError("features", c10::str("must be 0 to ", most_features, ", got ", features));
  return std::vector<Axis>(features, axis);
}

}  // namespace

bool Axis::bounded() const { return std::isfinite(lower) || std::isfinite(upper); }

bool Axis::same_as(const Axis& other) const {
  return same_end(lower, other.lower) && same_end(upper, other.upper) && circular == other.circular;
}

Space Space::reals(int64_t features) { return {{features}, alike(features, {})}; }

Space Space::box(int64_t features, double lower, double upper) { return {{features}, alike(features, {lower, upper})}; }

Space Space::torus(int64_t features) {
  return {{features}, alike(features, {-std::numbers::pi, std::numbers::pi, true})};
}

Space Space::product(std::vector<Axis> axes) { return {{static_cast<int64_t>(axes.size())}, std::move(axes)}; }

int64_t Space::size() const { return static_cast<int64_t>(axes.size()); }

bool Space::same_as(const Space& other) const {
  return event == other.event && std::equal(axes.begin(), axes.end(), other.axes.begin(), other.axes.end(),
                                            [](const Axis& a, const Axis& b) { return a.same_as(b); });
}

std::string to_string(const Axis& axis) {
  return axis.circular ? c10::str("circle [", axis.lower, ", ", axis.upper, ")")
                       : c10::str("(", axis.lower, ", ", axis.upper, ")");
}

std::string to_string(const Space& space) {
  auto text = c10::str("(*batch, ", c10::Join(", ", space.event), ")");
  const auto plain = [](const Axis& axis) { return !axis.bounded(); };
  if (std::all_of(space.axes.begin(), space.axes.end(), plain)) return text;
  const auto same = [&](const Axis& axis) { return axis.same_as(space.axes.front()); };
  if (std::all_of(space.axes.begin(), space.axes.end(), same))
    return c10::str(text, " in ", to_string(space.axes.front()));
  text += " in ";
  for (size_t i = 0; i < space.axes.size(); ++i) text += (i ? " x " : "") + to_string(space.axes[i]);
  return text;
}

}  // namespace diffeo
