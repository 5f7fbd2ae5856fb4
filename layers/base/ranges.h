#pragma once

#include <cmath>
#include <string>

#include "diffeo/layers/base/error.h"

// Ranges of options that are real numbers.
namespace diffeo {

/// `value`, which must be finite. Throws SpecError at `field` otherwise.
inline double finite(const std::string& field, double value) {
  if (!std::isfinite(value)) throw SpecError(field, c10::str("must be finite, got ", value));
  return value;
}

/// `value`, which must be above 0 and finite. Throws SpecError at `field` otherwise.
inline double above_zero(const std::string& field, double value) {
  if (!(value > 0) || !std::isfinite(value))
    throw SpecError(field, c10::str("must be above 0 and finite, got ", value));
  return value;
}

/// `value`, which must be at least 0 and finite. Throws SpecError at `field` otherwise.
inline double not_negative(const std::string& field, double value) {
  if (!(value >= 0)) throw SpecError(field, c10::str("must not be negative, got ", value));
  return finite(field, value);
}

}  // namespace diffeo
