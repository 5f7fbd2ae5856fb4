#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace diffeo {

/// The values one feature may take: an open or closed interval of the line, or a circle cut at its ends.
struct Axis {
  double lower = -std::numeric_limits<double>::infinity();
  double upper = std::numeric_limits<double>::infinity();
  bool circular = false;

  bool bounded() const;  ///< whether either end is finite
  /// Equal up to rounding of the ends.
  bool same_as(const Axis& other) const;
};

/// Where points live: the shape of one event and the axis of each of its features.
///
/// A tensor of points has shape (*batch, *event). Densities are taken with respect to dx.
struct Space {
  std::vector<int64_t> event;
  std::vector<Axis> axes;  ///< one for each feature, in row-major order of the event

  static Space reals(int64_t features);                            ///< R^D
  static Space box(int64_t features, double lower, double upper);  ///< (lower, upper)^D
  static Space torus(int64_t features);                            ///< angles in [-pi, pi)^D
  static Space product(std::vector<Axis> axes);                    ///< one feature for each axis

  int64_t size() const;  ///< number of features in an event
  bool same_as(const Space& other) const;
};

std::string to_string(const Axis& axis);    ///< `(-inf, inf)`, `(0, inf)`, `circle [-3.14159, 3.14159)`
std::string to_string(const Space& space);  ///< `(*batch, 4)`, followed by the axes where they are not all of R

}  // namespace diffeo
