// A product with a panel that lies in the nearest cache: twelve rows (six with the registers before AVX-512) times two
// registers of columns. Compiled once for each instruction set.
#include "diffeo/layers/base/transpose.h"
#include "diffeo/layers/nets/masked_linear_cpu.h"

namespace diffeo::masked_linear::DIFFEO_CAPABILITY {
using namespace lanes::DIFFEO_CAPABILITY;
namespace {

constexpr int across = 2;
constexpr int most_rows = register_bytes == 64 ? 12 : 6;
template <class T>
constexpr int64_t width = across* pack_size<T>;

template <class T, int rows>
void multiply_rows(const Product<T>& p, const T* a, T* to) {
  using V = Pack<T>;
  constexpr int64_t lanes = pack_size<T>;
  // Columns to spare are computed in a row of their own.
  const bool whole = p.columns == width<T>;
  T spare[rows][width<T>];
  const auto row = [&](int m) { return whole ? to + m * p.to_row : spare[m]; };
  V sums[rows][across];
  for (int m = 0; m < rows; ++m)
    for (int j = 0; j < across; ++j) sums[m][j] = p.start ? load<V>(p.start + j * lanes) : all<V>(0);
  const T* panel = p.panel;
  const int64_t a_row = p.a_row, a_step = p.a_step;
  for (int64_t k = 0; k < p.steps; ++k, panel += width<T>) {
    V b[across];
    for (int j = 0; j < across; ++j) b[j] = load<V>(panel + j * lanes);
    for (int m = 0; m < rows; ++m) {
      const V one = all<V>(a[m * a_row + k * a_step]);
      for (int j = 0; j < across; ++j) sums[m][j] += one * b[j];
    }
  }
  // Long sums are added up from shorter ones, which keeps more of their digits.
  for (int m = 0; m < rows; ++m)
    for (int j = 0; j < across; ++j) {
      T* at = row(m) + j * lanes;
      store(at, whole && p.add ? load<V>(at) + sums[m][j] : sums[m][j]);
    }
  if (whole) return;
  for (int m = 0; m < rows; ++m)
    for (int64_t c = 0; c < p.columns; ++c) {
      T& at = to[m * p.to_row + c];
      at = p.add ? at + spare[m][c] : spare[m][c];
    }
}

/// The rows that are left, fewer than most_rows.
template <class T, int rows = most_rows - 1>
void multiply_rest(const Product<T>& p, int64_t left, const T* a, T* to) {
  if (left == rows) return multiply_rows<T, rows>(p, a, to);
  if constexpr (rows > 1) multiply_rest<T, rows - 1>(p, left, a, to);
}

template <class T>
void multiply(const Product<T>& p) {
  int64_t row = 0;
  for (; row + most_rows <= p.rows; row += most_rows)
    multiply_rows<T, most_rows>(p, p.a + row * p.a_row, p.to + row * p.to_row);
  multiply_rest<T>(p, p.rows - row, p.a + row * p.a_row, p.to + row * p.to_row);
}

template <class T>
void pack(const T* rows, int64_t stride, int64_t steps, int64_t columns, T* panel) {
  using V = Pack<T>;
  for (int64_t k = 0; k < steps; ++k, rows += stride, panel += width<T>)
    if (columns == width<T>)
      for (int64_t j = 0; j < width<T>; j += pack_size<T>) store(panel + j, load<V>(rows + j));
    else
      for (int64_t j = 0; j < width<T>; ++j) panel[j] = j < columns ? rows[j] : T(0);
}

template <class T>
void pack_transposed(const T* rows, int64_t stride, int64_t steps, int64_t columns, T* panel) {
  constexpr int64_t lanes = pack_size<T>, piece = piece_size<T>;
  for (int64_t first = 0; first < width<T>; first += lanes) {
    const T* row[lanes];
    for (int64_t v = 0; v < lanes; ++v) row[v] = rows + (first + v < columns ? first + v : columns - 1) * stride;
    int64_t k = 0;
    for (; k + piece <= steps; k += piece) {
      const T* at[lanes];
      for (int64_t v = 0; v < lanes; ++v) at[v] = row[v] + k;
      Pack<T> square[piece];
      for (int64_t i = 0; i < piece; ++i) square[i] = joined_pieces<T>(at + i, piece);
      transpose_pieces(square);
      for (int64_t i = 0; i < piece; ++i) store(panel + (k + i) * width<T> + first, square[i]);
    }
    for (; k < steps; ++k)
      for (int64_t v = 0; v < lanes; ++v) panel[k * width<T> + first + v] = row[v][k];
  }
}

}  // namespace

const ProductKernels<float>& kernels(float) {
  static constexpr ProductKernels<float> table{width<float>, multiply<float>, pack<float>, pack_transposed<float>};
  return table;
}
const ProductKernels<double>& kernels(double) {
  static constexpr ProductKernels<double> table{width<double>, multiply<double>, pack<double>, pack_transposed<double>};
  return table;
}

}  // namespace diffeo::masked_linear::DIFFEO_CAPABILITY
