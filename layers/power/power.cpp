#include "diffeo/layers/power/power.h"

#include <ATen/ops/asinh.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sinh.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <limits>

#include "diffeo/layers/base/inside.h"
#include "diffeo/layers/base/ranges.h"
#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

const Axis positive{0, std::numeric_limits<double>::infinity()};

constexpr double least_power = 1e-3;

/// Exponents are kept where exp is finite, since the difference of two infinite gradients is NaN.
Tensor exponent(const Tensor& z) {
  const double largest = z.scalar_type() == at::kDouble ? 700 : 87;
  return z.clamp(-largest, largest);
}

double epsilon_of(const Tensor& x) {
  return x.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                        : std::numeric_limits<float>::epsilon();
}

/// log cosh z, smooth at 0 and finite for large z.
Tensor log_cosh(const Tensor& z) { return -0.5 * (at::log_sigmoid(2 * z) + at::log_sigmoid(-2 * z)) - std::log(2.0); }

/// The powers of the Yeo-Johnson transform on either side of 0: lambda and 2 - lambda.
Tensor power_at(const Tensor& negative, const Tensor& a) {
  // sigmoid(-a), not 1 - sigmoid(a), which loses the digits of a small one
  return least_power + (2 - 2 * least_power) * at::sigmoid(at::where(negative, -a, a));
}

}  // namespace

BoxCox::BoxCox(const Options& options) : options_(options) { finite("lambda", options.lambda); }

Axis BoxCox::domain() const { return positive; }

Axis BoxCox::codomain() const {
  if (options_.lambda > 0) return {-1 / options_.lambda, positive.upper};
  if (options_.lambda < 0) return {-positive.upper, -1 / options_.lambda};
  return {};
}

Mapped BoxCox::forward(const Tensor& x, const Tensor&) const {
  const auto log_x = inside("box_cox", x, domain()).log();
  const auto log_det = (options_.lambda - 1) * log_x.sum(-1);
  if (options_.lambda == 0) return {log_x, log_det};
  return {at::expm1(options_.lambda * log_x) / options_.lambda, log_det};
}

Mapped BoxCox::inverse(const Tensor& y, const Tensor&) const {
  auto log_x = y;
  if (options_.lambda != 0) {
    // The product may round to -1 although y lies inside.
    const auto shifted = (options_.lambda * inside("box_cox", y, codomain())).clamp_min(-1 + epsilon_of(y));
    log_x = at::log1p(shifted) / options_.lambda;
  }
  return {log_x.exp(), (1 - options_.lambda) * log_x.sum(-1)};
}

Axis DualPower::domain() const { return positive; }

Mapped DualPower::forward(const Tensor& x, const Tensor& parameters) const {
  const auto lambda = least_power + (1 - least_power) * at::sigmoid(parameters.select(-1, 0));
  const auto log_x = inside("dual_power", x, domain()).log();
  const auto z = lambda * log_x;
  return {at::sinh(exponent(z)) / lambda, (log_cosh(z) - log_x).sum(-1)};
}

Mapped DualPower::inverse(const Tensor& y, const Tensor& parameters) const {
  const auto lambda = least_power + (1 - least_power) * at::sigmoid(parameters.select(-1, 0));
  const auto z = at::asinh(lambda * y);
  const auto log_x = exponent(z / lambda);
  return {log_x.exp(), (log_x - log_cosh(z)).sum(-1)};
}

// Both signs of x in one formula of |x|, taken by `where`: unlike abs, it has a slope at 0.

Mapped YeoJohnson::forward(const Tensor& x, const Tensor& parameters) const {
  const auto negative = x < 0;
  const auto power = power_at(negative, parameters.select(-1, 0));
  const auto log_size = at::log1p(at::where(negative, -x, x));
  const auto size = at::expm1(exponent(power * log_size)) / power;
  return {at::where(negative, -size, size), ((power - 1) * log_size).sum(-1)};
}

Mapped YeoJohnson::inverse(const Tensor& y, const Tensor& parameters) const {
  const auto negative = y < 0;
  const auto power = power_at(negative, parameters.select(-1, 0));
  const auto log_size = exponent(at::log1p(power * at::where(negative, -y, y)) / power);
  const auto size = at::expm1(log_size);
  return {at::where(negative, -size, size), ((1 - power) * log_size).sum(-1)};
}

DIFFEO_UNIVARIATE(box_cox, BoxCox, "Box-Cox transform with a fixed power (Box and Cox 1964).", "y = (x^l - 1) / l, log x for l = 0; y' = x^(l - 1)",
                  {"logarithm", Json::object()}, {"square_root", {{"lambda", 0.5}}}, {"negative", {{"lambda", -0.7}}});

DIFFEO_UNIVARIATE(dual_power, DualPower, "From (0, inf) onto the line with a learned power (Yang 2006).", "y = (x^l - x^-l) / (2 l); y' = (x^(l - 1) + x^(-l - 1)) / 2",
                  {"plain", Json::object()});

DIFFEO_UNIVARIATE(yeo_johnson, YeoJohnson, "A learned power on either side of 0 (Yeo and Johnson 2000).", "y = ((x + 1)^l - 1) / l for x >= 0, -((1 - x)^(2 - l) - 1) / (2 - l) below; log y' = (l - 1) sign(x) log(1 + |x|)",
                  {"plain", Json::object()});

}  // namespace diffeo
