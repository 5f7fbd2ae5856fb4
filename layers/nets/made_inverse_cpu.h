#pragma once

#include <cstdint>

// What the CPU kernels of a masked network's inverse work on: plain pointers, since files compiled for one instruction
// set may see nothing else.
//
// A tile holds what is known of `tile_rows` points, features-major: (rows of the tile's memory, tile_rows). The rows
// are the inputs (context, then the features in their order, each `per_feature` rows), then the hidden units of each
// buffer, then room for two buffers of intermediate results.
namespace diffeo::made {

inline constexpr int64_t tile_rows = 64;

enum class Activation { none, relu, tanh, silu, gelu, elu, leaky_relu, softplus, sigmoid };

/// A linear map, or none. Weights beyond those of the inputs that a unit may see are never read.
template <class T>
struct UnitMap {
  const T* weight = nullptr;  ///< (units, stride)
  const T* bias = nullptr;    ///< (units)
  int64_t stride = 0;
};

/// target = activation(scale * (map(source) * sigmoid(gate(context))) + shift), or added to the target.
template <class T>
struct UnitStep {
  UnitMap<T> map;   ///< none: the source itself
  UnitMap<T> gate;  ///< none: 1
  const T* scale;   ///< for each unit; null for 1, with a shift of 0
  const T* shift;   ///< for each unit
  Activation activation;
  int source, target;  ///< buffers; source 0 is the inputs
  bool add;
};

/// A masked network whose hidden units are sorted by degree.
template <class T>
struct UnitProgram {
  int64_t context, per_feature, features, width, outputs;
  int buffers;
  const int64_t* units;  ///< hidden units of degree d and below, for d = 0 ... D - 1
  const UnitStep<T>* steps;
  int step_count;
  UnitMap<T> last;
  int last_source;
};

template <class T>
struct UnitKernels {
  /// The hidden units of a degree, when the context and the features up to this degree are in the tile.
  void (*fill)(const UnitProgram<T>& program, int64_t degree, T* tile);
  /// The outputs (P, tile_rows) of a feature of a degree, when all units of lower degrees are in the tile.
  void (*outputs)(const UnitProgram<T>& program, int64_t feature, int64_t degree, const T* tile, T* to);
  /// from (columns, tile_rows) to the first `rows` rows of (rows, columns).
  void (*transpose)(const T* from, int64_t columns, int64_t rows, T* to);
};

}  // namespace diffeo::made
