#pragma once

#include <cstdint>

namespace diffeo::rq_spline {

enum class Tails : int64_t { linear, none, circular };

/// Everything about a spline that is not a parameter. Lengths are in the units of x and y.
struct Shape {
  int64_t bins;
  Tails tails;
  double x_lower, x_upper, y_lower, y_upper;
  double min_width, min_height;  ///< parts of the domain and of the codomain
  double min_slope;
  double temperature = 1;  ///< that raw widths and heights are divided by before their softmax

  int64_t parameters() const;  ///< 3K - 1 (linear), 3K + 1 (none) or 3K (circular)
};

}  // namespace diffeo::rq_spline
