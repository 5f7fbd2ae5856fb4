#include "diffeo/layers/leaky_relu/leaky_relu.h"

#include <ATen/ops/where.h>

#include <cmath>

#include "diffeo/layers/base/ranges.h"
#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

Mapped bent(const Tensor& x, double slope) {
  const auto negative = x < 0;
  return {at::where(negative, slope * x, x), negative.to(x.scalar_type()).sum(-1) * std::log(slope)};
}

}  // namespace

LeakyRelu::LeakyRelu(const Options& options) : options_(options) { above_zero("slope", options.slope); }

Mapped LeakyRelu::forward(const Tensor& x, const Tensor&) const { return bent(x, options_.slope); }

Mapped LeakyRelu::inverse(const Tensor& y, const Tensor&) const { return bent(y, 1 / options_.slope); }

DIFFEO_UNIVARIATE(leaky_relu, LeakyRelu, "y = x, or slope x where x is negative.", "y = x for x >= 0, slope x below; y' = 1 or slope", {"plain", Json::object()},
                  {"steep", {{"slope", 3.0}}});

}  // namespace diffeo
