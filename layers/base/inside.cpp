#include "diffeo/layers/base/inside.h"

#include <ATen/ops/nonzero.h>

#include <cmath>

#include "diffeo/layers/base/error.h"

namespace diffeo {
namespace {

/// The first number of type T after `end` on the way to `towards`; a normal one next to zero, whose logarithm and
/// reciprocal are finite.
template <class T>
double next(double end, double towards) {
  if (!std::isfinite(end)) return end;
  const auto after = std::nextafter(static_cast<T>(end), static_cast<T>(towards));
  return std::abs(after) < std::numeric_limits<T>::min() ? std::copysign(std::numeric_limits<T>::min(), towards - end)
                                                         : after;
}

template <class T>
at::Tensor inside(const std::string& who, const at::Tensor& points, const Axis& axis) {
  const auto size = [](double end) { return std::isfinite(end) ? std::abs(end) : 0; };
  const double slack = 4 * std::numeric_limits<T>::epsilon() * std::max(size(axis.lower), size(axis.upper));
  const auto bad = (points < axis.lower - slack).logical_or(points > axis.upper + slack);
  if (bad.any().template item<bool>()) {
    const auto [row, feature] = first_of(bad);
    const auto value = points.reshape({-1, points.size(-1)})[row][feature].template item<double>();
    throw Error(
        c10::str(who, ": point ", value, " at row ", row, ", feature ", feature, " lies outside of ", to_string(axis)));
  }
  return points.clamp(next<T>(axis.lower, axis.upper), next<T>(axis.upper, axis.lower));
}

}  // namespace

at::Tensor inside(const std::string& who, const at::Tensor& points, const Axis& axis) {
  return points.scalar_type() == at::kDouble ? inside<double>(who, points, axis) : inside<float>(who, points, axis);
}

std::pair<int64_t, int64_t> first_of(const at::Tensor& bad) {
  const auto first = bad.flatten().nonzero()[0].item<int64_t>();
  return {first / bad.size(-1), first % bad.size(-1)};
}

}  // namespace diffeo
