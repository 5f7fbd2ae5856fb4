#pragma once

#include <optional>

#include "diffeo/layers/autoregressive/affine_tile_cpu.h"
#include "diffeo/layers/base/options.h"

namespace diffeo {

/// The affine map without tensors. For a feature of a few hundred rows, a dozen tensor operations take ten times as
/// long as the network's units (measured), so that this one map, that of most autoregressive flows, is inverted in the
/// tile.
struct AffineTile {
  affine_tile::Scale scale;
  double cap;

  /// The kernel for the instruction set in use.
  template <class T>
  static affine_tile::Kernel<T> kernel();
};

/// From the spec of a univariate map, or none if it is another one, or has options that are not known here.
std::optional<AffineTile> affine_tile_of(const Json& spec);

}  // namespace diffeo
