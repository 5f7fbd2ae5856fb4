#include "diffeo/layers/positive/positive.h"

#include <ATen/ops/expm1.h>
#include <ATen/ops/log_sigmoid.h>

#include <limits>

#include "diffeo/layers/base/inside.h"
#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

const Axis positive{0, std::numeric_limits<double>::infinity()};

Mapped exp_of(const Tensor& x) { return {x.exp(), x.sum(-1)}; }

Mapped log_of(const char* who, const Tensor& y) {
  const auto x = inside(who, y, positive).log();
  return {x, -x.sum(-1)};
}

}  // namespace

Axis Exp::codomain() const { return positive; }

Mapped Exp::forward(const Tensor& x, const Tensor&) const { return exp_of(x); }

Mapped Exp::inverse(const Tensor& y, const Tensor&) const { return log_of("exp", y); }

Axis Log::domain() const { return positive; }

Mapped Log::forward(const Tensor& x, const Tensor&) const { return log_of("log", x); }

Mapped Log::inverse(const Tensor& y, const Tensor&) const { return exp_of(y); }

Axis Softplus::codomain() const { return positive; }

Mapped Softplus::forward(const Tensor& x, const Tensor&) const {
  // Not at::softplus, which is x itself from 20 on: off by 2e-9.
  return {-at::log_sigmoid(-x), at::log_sigmoid(x).sum(-1)};
}

Mapped Softplus::inverse(const Tensor& y, const Tensor&) const {
  const auto point = inside("softplus", y, positive);
  const auto log_slope = (-at::expm1(-point)).log();  // log sigmoid(x)
  return {point + log_slope, -log_slope.sum(-1)};
}

DIFFEO_UNIVARIATE(exp, Exp, "From the line to (0, inf) by the exponential.", "y = e^x, log y' = x", {"plain", Json::object()});

DIFFEO_UNIVARIATE(log, Log, "From (0, inf) to the line by the logarithm.", "y = log x, log y' = -log x", {"plain", Json::object()});

DIFFEO_UNIVARIATE(softplus, Softplus, "From the line to (0, inf) by log(1 + e^x).", "y = log(1 + e^x), log y' = x - y", {"plain", Json::object()});

}  // namespace diffeo
