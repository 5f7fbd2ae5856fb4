#include "diffeo/layers/base/univariate.h"

namespace diffeo {

MapGradients Univariate::gradients(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                   bool) const {
  throw Error(c10::str(spec().value("type", std::string("map")), ": has no gradients but those of autograd"));
}

std::vector<double> identities(const Univariate& map, int64_t features) {
  const auto one = map.identity();
  std::vector<double> all;
  for (int64_t i = 0; i < features; ++i) all.insert(all.end(), one.begin(), one.end());
  return all;
}

}  // namespace diffeo
