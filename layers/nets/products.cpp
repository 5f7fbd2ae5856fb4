#include "diffeo/layers/nets/products.h"

#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/relu.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace diffeo::products {
namespace {

template <class T>
at::Tensor tensor_of(const Matrix<T>& m) {
  return at::from_blob(const_cast<std::remove_const_t<T>*>(m.data), {m.rows, m.columns},
                       {m.row_stride, m.column_stride}, c10::CppTypeToScalarType<std::remove_const_t<T>>::value);
}

template <class T>
void multiply_by_libtorch(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& c,
                          const Finish<T>& finish) {
  at::NoGradGuard no_grad;
  auto into = tensor_of(c);
  if (finish.add)
    into.addmm_(tensor_of(a), tensor_of(b));
  else
    at::mm_out(into, tensor_of(a), tensor_of(b));
  if (finish.bias) into.add_(tensor_of(Matrix<const T>{finish.bias, 1, c.columns}));
  if (finish.relu) into.relu_();
}

bool by_libtorch() {
  static const bool chosen = [] {
    const char* name = std::getenv("DIFFEO_PRODUCTS");
    return name && std::string(name) == "libtorch";
  }();
  return chosen;
}

/// The usual strides where a single row or column leaves them open: others look like those of a submatrix.
template <class T>
Matrix<T> plain(Matrix<T> m) {
  if (m.rows == 1 && m.column_stride == 1) m.row_stride = m.columns;
  if (m.columns == 1 && m.row_stride == 1) m.column_stride = m.rows;
  if (m.rows == 1 && m.columns == 1) m.row_stride = m.column_stride = 1;
  return m;
}

/// A matrix rounded to bfloat16, its elements in the same order, without gaps.
class Rounded {
 public:
  explicit Rounded(const Matrix<const float>& m) : by_rows_(m.column_stride == 1) {
    const auto from = by_rows_ ? tensor_of(m) : tensor_of(m.transposed());
    bits_ = at::empty(from.sizes(), from.options().dtype(at::kBFloat16));
    bits_.copy_(from);
  }
  Matrix<const uint16_t> bits() const { return as(reinterpret_cast<const uint16_t*>(bits_.const_data_ptr())); }
  Matrix<const float> values() {
    if (!values_.defined()) values_ = bits_.to(at::kFloat);
    return as(values_.const_data_ptr<float>());
  }

 private:
  template <class T>
  Matrix<const T> as(const T* data) const {
    const Matrix<const T> m{data, bits_.size(0), bits_.size(1)};
    return by_rows_ ? m : m.transposed();
  }

  bool by_rows_;
  at::Tensor bits_, values_;
};

void multiply_by_the_best(const Matrix<const float>& a, const Matrix<const float>& b, const Matrix<float>& c,
                          const Finish<float>& finish) {
  const int threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  if (finish.bfloat16) {
    at::NoGradGuard no_grad;
    Rounded rounded_a(a), rounded_b(b);
    if (!by_libtorch() &&
        multiply_by_onednn(plain(rounded_a.bits()), plain(rounded_b.bits()), plain(c), finish, threads))
      return;
    auto exact = finish;
    exact.bfloat16 = false;
    return multiply_by_the_best(rounded_a.values(), rounded_b.values(), c, exact);
  }
  if (by_libtorch() || !multiply_by_onednn(plain(a), plain(b), plain(c), finish, threads))
    multiply_by_libtorch(a, b, c, finish);
}

/// oneDNN fills few columns of many rows slowly: the transposed product has many columns.
constexpr int64_t few = 16;

}  // namespace

void multiply(const Matrix<const float>& a, const Matrix<const float>& b, const Matrix<float>& c,
              const Finish<float>& finish) {
  if (c.rows == 0 || c.columns == 0) return;
  if (a.columns == 0) return multiply_by_libtorch(a, b, c, finish);
  const bool plain = !finish.bias && !finish.add && !finish.relu;
  if (!plain || c.columns >= few || c.rows < 4 * c.columns) return multiply_by_the_best(a, b, c, finish);
  thread_local std::vector<float> scratch;
  scratch.resize(std::max<size_t>(scratch.size(), c.rows * c.columns));
  multiply_by_the_best(b.transposed(), a.transposed(), {scratch.data(), c.columns, c.rows},
                       {.bfloat16 = finish.bfloat16});
  for (int64_t i = 0; i < c.rows; ++i)
    for (int64_t j = 0; j < c.columns; ++j) c.data[i * c.row_stride + j] = scratch[j * c.rows + i];
}

void multiply(const Matrix<const double>& a, const Matrix<const double>& b, const Matrix<double>& c,
              const Finish<double>& finish) {
  if (c.rows > 0 && c.columns > 0) multiply_by_libtorch(a, b, c, finish);
}

}  // namespace diffeo::products
