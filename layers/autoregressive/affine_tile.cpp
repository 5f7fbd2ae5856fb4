#include "diffeo/layers/autoregressive/affine_tile.h"

#include "diffeo/layers/base/cpu_capability.h"

namespace diffeo {
namespace affine_tile {

namespace baseline {
Kernel<float> kernel(float);
Kernel<double> kernel(double);
}  // namespace baseline
#ifdef __x86_64__
namespace avx2 {
Kernel<float> kernel(float);
Kernel<double> kernel(double);
}  // namespace avx2
namespace avx512 {
Kernel<float> kernel(float);
Kernel<double> kernel(double);
}  // namespace avx512
#endif

}  // namespace affine_tile

template <class T>
affine_tile::Kernel<T> AffineTile::kernel() {
#ifdef __x86_64__
  if (cpu_capability() == CpuCapability::avx512) return affine_tile::avx512::kernel(T());
  if (cpu_capability() == CpuCapability::avx2) return affine_tile::avx2::kernel(T());
#endif
  return affine_tile::baseline::kernel(T());
}
template affine_tile::Kernel<float> AffineTile::kernel();
template affine_tile::Kernel<double> AffineTile::kernel();

std::optional<AffineTile> affine_tile_of(const Json& spec) {
  using affine_tile::Scale;
  if (spec.value("type", "") != "affine" || spec.value("volume_preserving", true)) return {};
  for (const auto& [key, value] : spec.items())
    if (key != "type" && key != "scale" && key != "cap" && key != "volume_preserving") return {};
  const std::string name = spec.value("scale", "");
  const double cap = spec.value("cap", 0.0);
  if (name == "bounded") return AffineTile{Scale::bounded, cap};
  if (name == "exp") return AffineTile{Scale::exp, cap};
  if (name == "sigmoid") return AffineTile{Scale::sigmoid, cap};
  if (name == "softplus") return AffineTile{Scale::softplus, cap};
  return {};
}

}  // namespace diffeo
