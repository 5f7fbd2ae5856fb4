// The units of a masked network, one degree at a time, for a tile of rows: about six units times all rows of the tile
// are one set of registers, over inputs that lie in the nearest cache. Compiled once for each instruction set.
#include "diffeo/layers/base/transpose.h"
#include "diffeo/layers/nets/made_inverse_cpu.h"

namespace diffeo::made::DIFFEO_CAPABILITY {
using namespace lanes::DIFFEO_CAPABILITY;
namespace {

// Registers along the rows, and units at once: their product is the sums that are held, with a few registers left.
constexpr int across = register_bytes == 64 ? 4 : 2;
constexpr int most_units = 6;

/// to (units, tile_rows) = weight (units, inputs) from (inputs, tile_rows) + bias.
template <int units, class T>
void product(const UnitMap<T>& map, int64_t inputs, const T* from, T* to) {
  using V = Pack<T>;
  constexpr int64_t lanes = pack_size<T>;
  for (int64_t column = 0; column < tile_rows; column += across * lanes) {
    V sums[units][across];
    for (int u = 0; u < units; ++u)
      for (int j = 0; j < across; ++j) sums[u][j] = all<V>(map.bias[u]);
    for (int64_t k = 0; k < inputs; ++k) {
      V x[across];
      for (int j = 0; j < across; ++j) x[j] = load<V>(from + k * tile_rows + column + j * lanes);
      for (int u = 0; u < units; ++u) {
        const V w = all<V>(map.weight[u * map.stride + k]);
        for (int j = 0; j < across; ++j) sums[u][j] += w * x[j];
      }
    }
    for (int u = 0; u < units; ++u)
      for (int j = 0; j < across; ++j) store(to + u * tile_rows + column + j * lanes, sums[u][j]);
  }
}

/// The same for any number of units from `first` on.
template <class T>
void products(const UnitMap<T>& all_units, int64_t first, int64_t units, int64_t inputs, const T* from, T* to) {
  auto map = all_units;
  map.weight += first * map.stride;
  map.bias += first;
  while (units > 0) {
    // Two halves are better than a whole and a small rest, which could not hide how long an addition takes.
    const int64_t here = units > most_units && units < 2 * most_units ? (units + 1) / 2
                         : units < most_units                         ? units
                                                                      : most_units;
    switch (here) {
      case 1:
        product<1>(map, inputs, from, to);
        break;
      case 2:
        product<2>(map, inputs, from, to);
        break;
      case 3:
        product<3>(map, inputs, from, to);
        break;
      case 4:
        product<4>(map, inputs, from, to);
        break;
      case 5:
        product<5>(map, inputs, from, to);
        break;
      default:
        product<6>(map, inputs, from, to);
    }
    map.weight += here * map.stride;
    map.bias += here;
    to += here * tile_rows;
    units -= here;
  }
}

/// e^-|x|, NaN of NaN.
template <class V>
DIFFEO_HD V exp_minus_magnitude(V x) {
  return select(x == x, exp_nonpositive(-magnitude(x)), x);
}

template <class V>
DIFFEO_HD V sigmoid(V x) {
  const V e = exp_minus_magnitude(x), one = all<V>(1);
  return select(x < all<V>(0), e, one) / (one + e);
}

template <class V>
DIFFEO_HD V hyperbolic_tangent(V x) {
  const V e = exp_minus_magnitude(x + x), size = (all<V>(1) - e) / (all<V>(1) + e);
  return select(x < all<V>(0), -size, size);
}

/// The error function of the C library, number by number: the one activation that LibTorch has faster.
template <class V>
DIFFEO_HD V gelu(V x) {
  V result;
  for (unsigned i = 0; i < sizeof(V) / sizeof(x[0]); ++i)
    if constexpr (sizeof(x[0]) == 4)
      result[i] = 0.5f * x[i] * (1 + __builtin_erff(x[i] * 0.70710678118654752f));
    else
      result[i] = 0.5 * x[i] * (1 + __builtin_erf(x[i] * 0.70710678118654752440));
  return result;
}

/// to = f(scale * from + shift) for rows of a tile.
template <class T, class F>
DIFFEO_HD void each(const UnitStep<T>& step, int64_t first, int64_t units, const T* from, T* to, const F& f) {
  using V = Pack<T>;
  for (int64_t u = 0; u < units; ++u) {
    const T scale = step.scale ? step.scale[first + u] : T(1), shift = step.scale ? step.shift[first + u] : T(0);
    for (int64_t i = u * tile_rows; i < (u + 1) * tile_rows; i += pack_size<T>)
      store(to + i, f(load<V>(from + i) * all<V>(scale) + all<V>(shift)));
  }
}

template <class T>
void activate(const UnitStep<T>& step, int64_t first, int64_t units, const T* from, T* to) {
  using V = Pack<T>;
  const auto run = [&](const auto& f) { each(step, first, units, from, to, f); };
  const V zero = all<V>(0);
  switch (step.activation) {
    case Activation::none:
      return run([](V x) { return x; });
    case Activation::relu:
      return run([=](V x) { return select(x < zero, zero, x); });
    case Activation::leaky_relu:
      return run([=](V x) { return select(x < zero, x * T(0.01), x); });
    case Activation::tanh:
      return run([](V x) { return hyperbolic_tangent(x); });
    case Activation::sigmoid:
      return run([](V x) { return sigmoid(x); });
    case Activation::silu:
      return run([](V x) { return x * sigmoid(x); });
    case Activation::gelu:
      return run([](V x) { return gelu(x); });
    case Activation::elu:
      return run([=](V x) { return select(x < zero, exp_minus_magnitude(x) - T(1), x); });
    case Activation::softplus:  // LibTorch's is the identity beyond 20
      return run([=](V x) { return select(x > all<V>(20), x, larger(x, zero) + log1p_unit(exp_minus_magnitude(x))); });
  }
}

/// The first unit of a buffer. Buffer 0 is the inputs.
template <class T>
DIFFEO_HD T* buffer_of(const UnitProgram<T>& program, T* tile, int buffer) {
  if (buffer == 0) return tile;
  return tile + tile_rows * (program.context + program.features * program.per_feature + (buffer - 1) * program.width);
}

template <class T>
void fill(const UnitProgram<T>& program, int64_t degree, T* tile) {
  const int64_t first = degree == 0 ? 0 : program.units[degree - 1], end = program.units[degree], units = end - first;
  if (units == 0) return;
  T *room = buffer_of(program, tile, program.buffers + 1), *gates = buffer_of(program, tile, program.buffers + 2);
  for (int i = 0; i < program.step_count; ++i) {
    const auto& step = program.steps[i];
    const T* from = buffer_of(program, tile, step.source);
    T* to = buffer_of(program, tile, step.target) + first * tile_rows;
    if (step.map.weight == nullptr) {
      activate(step, first, units, from + first * tile_rows, to);
      continue;
    }
    T* result = step.add ? room : to;
    const int64_t inputs = step.source == 0 ? program.context + degree * program.per_feature : end;
    products(step.map, first, units, inputs, from, result);
    if (step.gate.weight != nullptr) {
      products(step.gate, first, units, program.context, static_cast<const T*>(tile), gates);
      for (int64_t j = 0; j < units * tile_rows; j += pack_size<T>)
        store(result + j, load<Pack<T>>(result + j) * sigmoid(load<Pack<T>>(gates + j)));
    }
    if (step.activation != Activation::none || step.scale != nullptr) activate(step, first, units, result, result);
    if (!step.add) continue;
    for (int64_t j = 0; j < units * tile_rows; j += pack_size<T>)
      store(to + j, load<Pack<T>>(to + j) + load<Pack<T>>(result + j));
  }
}

template <class T>
void outputs(const UnitProgram<T>& program, int64_t feature, int64_t degree, const T* tile, T* to) {
  const int64_t inputs =
      program.last_source == 0 ? program.context + (degree - 1) * program.per_feature : program.units[degree - 1];
  const T* from = buffer_of(program, const_cast<T*>(tile), program.last_source);
  products(program.last, feature * program.outputs, program.outputs, inputs, from, to);
}

template <class T>
void transpose(const T* from, int64_t columns, int64_t rows, T* to) {
  constexpr int64_t lanes = pack_size<T>, piece = piece_size<T>;
  for (int64_t row = 0; row < rows; row += lanes) {
    int64_t j = 0;
    for (; row + lanes <= rows && j + piece <= columns; j += piece) {
      Pack<T> square[piece];
      for (int64_t i = 0; i < piece; ++i) square[i] = load<Pack<T>>(from + (j + i) * tile_rows + row);
      transpose_pieces(square);
      for (int64_t i = 0; i < piece; ++i) {
        T* at = to + (row + i) * columns + j;
        store_piece<0>(at, square[i]);
        if constexpr (register_bytes >= 32) store_piece<1>(at + piece * columns, square[i]);
        if constexpr (register_bytes >= 64) {
          store_piece<2>(at + 2 * piece * columns, square[i]);
          store_piece<3>(at + 3 * piece * columns, square[i]);
        }
      }
    }
    for (; j < columns; ++j)
      for (int64_t v = row; v < (row + lanes < rows ? row + lanes : rows); ++v)
        to[v * columns + j] = from[j * tile_rows + v];
  }
}

}  // namespace

const UnitKernels<float>& kernels(float) {
  static constexpr UnitKernels<float> table{fill<float>, outputs<float>, transpose<float>};
  return table;
}
const UnitKernels<double>& kernels(double) {
  static constexpr UnitKernels<double> table{fill<double>, outputs<double>, transpose<double>};
  return table;
}

}  // namespace diffeo::made::DIFFEO_CAPABILITY
