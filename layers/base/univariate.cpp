#include "diffeo/layers/base/univariate.h"

namespace diffeo {

std::vector<double> identities(const Univariate& map, int64_t features) {
  const auto one = map.identity();
  std::vector<double> all;
  for (int64_t i = 0; i < features; ++i) all.insert(all.end(), one.begin(), one.end());
  return all;
}

}  // namespace diffeo
