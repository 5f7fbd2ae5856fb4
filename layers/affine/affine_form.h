#pragma once

#include <cstdint>

namespace diffeo::affine {

enum class Scale : int64_t { bounded, exp, sigmoid, softplus };

/// How the log scale s comes from the raw parameter a; see Affine.
struct Form {
  Scale scale;
  double cap;  ///< bound on |s| where the scale is bounded
};

inline constexpr double least_scale = 1e-3;  ///< of the sigmoid and softplus forms

}  // namespace diffeo::affine
