#pragma once

#include "diffeo/layers/base/module.h"

namespace diffeo {

/// Gathers, while it is in scope on this thread, what layers ask to be added to a loss besides the likelihood.
///
/// A layer that regularises itself says so where it goes forward: `if (Penalties::wanted()) Penalties::add(...)`. No
/// log density contains it, and nothing is computed where nobody gathers.
class Penalties {
 public:
  Penalties();
  ~Penalties();
  Penalties(const Penalties&) = delete;
  Penalties& operator=(const Penalties&) = delete;

  static bool wanted();                    ///< whether one is in scope
  static void add(const Tensor& penalty);  ///< a scalar, with its graph, to the innermost one in scope
  /// The sum of what was added, a scalar; undefined if nothing was.
  const Tensor& sum() const { return sum_; }

 private:
  Penalties* outer_;
  Tensor sum_;
};

}  // namespace diffeo
