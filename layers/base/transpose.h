#pragma once

#include "diffeo/layers/base/lanes.h"

// Rows of numbers in and out of registers: element v's row becomes lane v of a register for each column.
namespace diffeo::lanes::DIFFEO_CAPABILITY {

/// As many T as fit in 16 bytes: what is transposed at once.
template <class T>
using Piece = typename PackOf<T, 16>::Type;
template <class T>
inline constexpr int piece_size = 16 / static_cast<int>(sizeof(T));

/// Interleaves the lower (half 0) or upper (half 1) parts of each piece of a and b.
template <int half, class V, int... i>
DIFFEO_HD V interleaved(V a, V b, std::integer_sequence<int, i...>) {
  constexpr int lanes = sizeof...(i), piece = piece_size<Lane<V>>;
  return __builtin_shufflevector(a, b,
                                 ((i / piece) * piece + half * (piece / 2) + (i % piece) / 2 + (i % 2) * lanes)...);
}
template <int half, class V>
DIFFEO_HD V interleaved(V a, V b) {
  return interleaved<half>(a, b, std::make_integer_sequence<int, sizeof(V) / sizeof(Lane<V>)>());
}

/// Transposes the small squares that lie side by side in `piece_size` registers.
template <class V>
DIFFEO_HD void transpose_pieces(V* a) {
  if constexpr (sizeof(Lane<V>) == 8) {
    const V low = interleaved<0>(a[0], a[1]);
    a[1] = interleaved<1>(a[0], a[1]);
    a[0] = low;
  } else {
    const V b0 = interleaved<0>(a[0], a[2]), b1 = interleaved<1>(a[0], a[2]);
    const V b2 = interleaved<0>(a[1], a[3]), b3 = interleaved<1>(a[1], a[3]);
    a[0] = interleaved<0>(b0, b2);
    a[1] = interleaved<1>(b0, b2);
    a[2] = interleaved<0>(b1, b3);
    a[3] = interleaved<1>(b1, b3);
  }
}

/// Joins pieces end to end.
template <class V, int... i>
DIFFEO_HD typename PackOf<Lane<V>, 2 * sizeof(V)>::Type joined(V a, V b, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(a, b, i...);
}
template <class T>
DIFFEO_HD Pack<T> joined_pieces(const T* const* from, int64_t step) {
  const auto two = std::make_integer_sequence<int, 2 * piece_size<T>>();
  [[maybe_unused]] const auto four = std::make_integer_sequence<int, 4 * piece_size<T>>();
  const auto piece = [&](int i) { return load<Piece<T>>(from[i * step]); };
  if constexpr (register_bytes == 16)
    return piece(0);
  else if constexpr (register_bytes == 32)
    return joined(piece(0), piece(1), two);
  else
    return joined(joined(piece(0), piece(1), two), joined(piece(2), piece(3), two), four);
}

template <int piece, class V, int... i>
DIFFEO_HD Piece<Lane<V>> piece_of(V a, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(a, a, (piece * static_cast<int>(sizeof...(i)) + i)...);
}
template <int piece, class V>
DIFFEO_HD void store_piece(Lane<V>* to, V a) {
  store(to, piece_of<piece>(a, std::make_integer_sequence<int, piece_size<Lane<V>>>()));
}

/// columns[j][v] = rows[v * size + j] for j < size. Lanes beyond `count` repeat the last row.
template <class T>
DIFFEO_HD void load_transposed(const T* rows, int64_t count, int64_t size, Pack<T>* columns) {
  constexpr int64_t lanes = pack_size<T>, piece = piece_size<T>;
  const T* row[lanes];
  for (int64_t v = 0; v < lanes; ++v) row[v] = rows + (v < count ? v : count - 1) * size;
  if (size < piece) {
    for (int64_t v = 0; v < lanes; ++v)
      for (int64_t j = 0; j < size; ++j) columns[j][v] = row[v][j];
    return;
  }
  for (int64_t j = 0;; j = j + 2 * piece <= size ? j + piece : size - piece) {
    // The last group of columns may overlap the one before it.
    const T* at[lanes];
    for (int64_t v = 0; v < lanes; ++v) at[v] = row[v] + j;
    Pack<T> square[piece];
    for (int64_t i = 0; i < piece; ++i) square[i] = joined_pieces<T>(at + i, piece);
    transpose_pieces(square);
    for (int64_t i = 0; i < piece; ++i) columns[j + i] = square[i];
    if (j + piece == size) return;
  }
}

/// rows[v * size + j] = columns[j][v] for v < count and j < size.
template <class T>
DIFFEO_HD void store_transposed(T* rows, int64_t count, int64_t size, const Pack<T>* columns) {
  constexpr int64_t lanes = pack_size<T>, piece = piece_size<T>;
  if (size < piece || count < lanes) {
    for (int64_t v = 0; v < count; ++v)
      for (int64_t j = 0; j < size; ++j) rows[v * size + j] = columns[j][v];
    return;
  }
  for (int64_t j = 0;; j = j + 2 * piece <= size ? j + piece : size - piece) {
    Pack<T> square[piece];
    for (int64_t i = 0; i < piece; ++i) square[i] = columns[j + i];
    transpose_pieces(square);
    for (int64_t i = 0; i < piece; ++i) {
      T* to = rows + i * size + j;
      store_piece<0>(to, square[i]);
      if constexpr (register_bytes >= 32) store_piece<1>(to + piece * size, square[i]);
      if constexpr (register_bytes >= 64) {
        store_piece<2>(to + 2 * piece * size, square[i]);
        store_piece<3>(to + 3 * piece * size, square[i]);
      }
    }
    if (j + piece == size) return;
  }
}

}  // namespace diffeo::lanes::DIFFEO_CAPABILITY
