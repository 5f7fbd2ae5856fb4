#pragma once

// Matrix products. This header sees no LibTorch: the file that calls oneDNN must not, because LibTorch's include folder
// carries headers of another oneDNN.

#include <cstdint>

namespace diffeo::products {

/// A matrix in memory: element (i, j) is data[i * row_stride + j * column_stride], and one of the strides is 1.
template <class T>
struct Matrix {
  T* data = nullptr;
  int64_t rows = 0, columns = 0;
  int64_t row_stride = columns, column_stride = 1;

  Matrix transposed() const { return {data, columns, rows, column_stride, row_stride}; }
  Matrix block(int64_t row, int64_t column, int64_t count_rows, int64_t count_columns) const {
    return {data + row * row_stride + column * column_stride, count_rows, count_columns, row_stride, column_stride};
  }
  operator Matrix<const T>() const { return {data, rows, columns, row_stride, column_stride}; }
};

/// What is done to a product on its way to memory, in this order.
template <class T>
struct Finish {
  const T* bias = nullptr;  ///< one value for each column, added to every row
  bool add = false;         ///< to what was there
  bool relu = false;
  bool bfloat16 = false;  ///< both factors of a float32 product are rounded to bfloat16 first; its sums stay float32
};

/// c = a b, finished as told, on the threads of ATen's pool. The rows of c lie one after the other (column_stride 1).
/// Equal calls give equal bits. float32 goes to oneDNN where it has a kernel (matrices without gaps), unless the
/// environment has DIFFEO_PRODUCTS=libtorch; float64 to LibTorch. Rounded factors go to oneDNN where the processor
/// multiplies bfloat16 (AVX-512 BF16 or AMX); elsewhere they are multiplied as float32, which is no faster than exact
/// ones.
void multiply(const Matrix<const float>& a, const Matrix<const float>& b, const Matrix<float>& c,
              const Finish<float>& finish = {});
void multiply(const Matrix<const double>& a, const Matrix<const double>& b, const Matrix<double>& c,
              const Finish<double>& finish = {});

/// By oneDNN, for sizes above 0, if it has a fast kernel that is safe beside LibTorch; otherwise does nothing and gives
/// false (submatrices, and machines without AVX-512, in oneDNN 2.6). Throws std::runtime_error with what oneDNN said.
bool multiply_by_onednn(const Matrix<const float>& a, const Matrix<const float>& b, const Matrix<float>& c,
                        const Finish<float>& finish, int threads);
/// The same with factors in bfloat16, given as their bits.
bool multiply_by_onednn(const Matrix<const uint16_t>& a, const Matrix<const uint16_t>& b, const Matrix<float>& c,
                        const Finish<float>& finish, int threads);

}  // namespace diffeo::products
