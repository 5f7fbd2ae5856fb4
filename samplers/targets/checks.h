#pragma once

#include <cmath>
#include <string>

#include "diffeo/layers/base/error.h"

namespace diffeo {

/// `value`, which must be finite. Throws SpecError at `field` otherwise.
inline double finite(const std::string& field, double value) {
  if (!std::isfinite(value)) throw SpecError(field, c10::str("must be finite, got ", value));
  return value;
}

/// `value`, which must be finite and above 0. Throws SpecError at `field` otherwise.
inline double above_zero(const std::string& field, double value) {
  if (!std::isfinite(value) || !(value > 0)) throw SpecError(field, c10::str("must be above 0, got ", value));
  return value;
}

}  // namespace diffeo
