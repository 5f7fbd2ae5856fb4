#include <array>
#include <dnnl.hpp>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "diffeo/layers/nets/products.h"

namespace diffeo::products {
namespace {

using dnnl::memory;

/// All that a primitive depends on.
using Key = std::array<int64_t, 10>;
struct Hash {
  size_t operator()(const Key& key) const {
    uint64_t hash = 14695981039346656037u;  // Fowler, Noll and Vo's, word by word
    for (const auto number : key) hash = (hash ^ static_cast<uint64_t>(number)) * 1099511628211u;
    return hash ^ hash >> 32;
  }
};

/// A product made for its shapes, with the memory objects that are pointed at each call's data.
struct Product {
  dnnl::matmul primitive;
  memory a, b, c, bias;
};

memory::desc description(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  return {{rows, columns}, memory::data_type::f32, memory::dims{row_stride, column_stride}};
}

/// LibTorch carries a oneDNN of its own, and exports some of its templates. Those of the older kernels (gemm) are then
/// initialised there instead of here, and fail; the newer ones (brgemm) share nothing.
bool is_safe(const std::string& implementation) { return implementation.starts_with("brg"); }

class Engine {
 public:
  bool multiply(const Matrix<const float>& a, const Matrix<const float>& b, const Matrix<float>& c,
                const Finish<float>& finish, int threads) {
    const Key key{
        a.rows,          a.columns,       b.columns,
        a.row_stride,    a.column_stride, b.row_stride,
        b.column_stride, c.row_stride,    (finish.bias ? 1 : 0) + (finish.add ? 2 : 0) + (finish.relu ? 4 : 0),
        threads};
    auto found = products_.find(key);
    if (found == products_.end()) {
      // Sizes of batches come and go; a network has a few dozen products for each.
      if (products_.size() >= 4096) products_.clear();
      found = products_.emplace(key, made(a, b, c, finish)).first;
    }
    auto& [primitive, ma, mb, mc, mbias] = found->second;
    if (!primitive) return false;
    ma.set_data_handle(const_cast<float*>(a.data));
    mb.set_data_handle(const_cast<float*>(b.data));
    mc.set_data_handle(c.data);
    arguments_.clear();
    arguments_.insert({{DNNL_ARG_SRC, ma}, {DNNL_ARG_WEIGHTS, mb}, {DNNL_ARG_DST, mc}});
    if (finish.bias) {
      mbias.set_data_handle(const_cast<float*>(finish.bias));
      arguments_.insert({DNNL_ARG_BIAS, mbias});
    }
    primitive.execute(stream_, arguments_);
    return true;
  }

 private:
  Product made(const Matrix<const float>& a, const Matrix<const float>& b, const Matrix<float>& c,
               const Finish<float>& finish) {
    const auto da = description(a.rows, a.columns, a.row_stride, a.column_stride),
               db = description(b.rows, b.columns, b.row_stride, b.column_stride),
               dc = description(c.rows, c.columns, c.row_stride, 1),
               dbias = finish.bias ? description(1, c.columns, c.columns, 1) : memory::desc();
    dnnl::post_ops after;
    if (finish.add) after.append_sum(1.f);
    dnnl::primitive_attr attributes;
#if DNNL_VERSION_MAJOR >= 3
    if (finish.relu) after.append_eltwise(dnnl::algorithm::eltwise_relu, 0.f, 0.f);
    attributes.set_post_ops(after);
    const dnnl::matmul::primitive_desc product(engine_, da, db, dbias, dc, attributes);
#else
    if (finish.relu) after.append_eltwise(1.f, dnnl::algorithm::eltwise_relu, 0.f, 0.f);
    attributes.set_post_ops(after);
    const dnnl::matmul::primitive_desc product(dnnl::matmul::desc(da, db, dbias, dc), attributes, engine_);
#endif
    if (!is_safe(product.impl_info_str())) return {};
    return {dnnl::matmul(product), memory(da, engine_, nullptr), memory(db, engine_, nullptr),
            memory(dc, engine_, nullptr), finish.bias ? memory(dbias, engine_, nullptr) : memory()};
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::unordered_map<Key, Product, Hash> products_;
  std::unordered_map<int, memory> arguments_;
};

}  // namespace

bool multiply_by_onednn(const Matrix<const float>& a, const Matrix<const float>& b, const Matrix<float>& c,
                        const Finish<float>& finish, int threads) try {
  thread_local Engine engine;
  return engine.multiply(a, b, c, finish, threads);
} catch (const dnnl::error& error) {
  throw std::runtime_error("oneDNN: a product of (" + std::to_string(a.rows) + ", " + std::to_string(a.columns) +
                           ") by (" + std::to_string(b.rows) + ", " + std::to_string(b.columns) + "): " + error.what());
}

}  // namespace diffeo::products
