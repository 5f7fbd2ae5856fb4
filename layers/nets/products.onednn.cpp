#include <array>
#include <dnnl.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>
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

template <class T>
constexpr auto type_of = std::is_same_v<T, float> ? memory::data_type::f32 : memory::data_type::bf16;

template <class T>
memory::desc description(const Matrix<T>& m) {
  return {{m.rows, m.columns}, type_of<std::remove_const_t<T>>, memory::dims{m.row_stride, m.column_stride}};
}

/// LibTorch carries a oneDNN of its own, and exports some of its templates. Those of the older kernels (gemm) are then
/// initialised there instead of here, and fail; the newer ones (brgemm) share nothing.
bool is_safe(const std::string& implementation) { return implementation.starts_with("brg"); }

/// Products of factors of type T.
template <class T>
class Engine {
 public:
  bool multiply(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<float>& c, const Finish<float>& finish,
                int threads) {
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
    ma.set_data_handle(const_cast<T*>(a.data));
    mb.set_data_handle(const_cast<T*>(b.data));
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
  Product made(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<float>& c,
               const Finish<float>& finish) {
    const auto da = description(a), db = description(b), dc = description(c),
               dbias = finish.bias ? description(Matrix<const float>{finish.bias, 1, c.columns}) : memory::desc();
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

template <class T>
bool multiplied(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<float>& c, const Finish<float>& finish,
                int threads) try {
  thread_local Engine<T> engine;
  return engine.multiply(a, b, c, finish, threads);
} catch (const dnnl::error& error) {
  throw std::runtime_error("oneDNN: a product of (" + std::to_string(a.rows) + ", " + std::to_string(a.columns) +
                           ") by (" + std::to_string(b.rows) + ", " + std::to_string(b.columns) + "): " + error.what());
}

}  // namespace

bool multiply_by_onednn(const Matrix<const float>& a, const Matrix<const float>& b, const Matrix<float>& c,
                        const Finish<float>& finish, int threads) {
  return multiplied(a, b, c, finish, threads);
}

bool multiply_by_onednn(const Matrix<const uint16_t>& a, const Matrix<const uint16_t>& b, const Matrix<float>& c,
                        const Finish<float>& finish, int threads) {
  // Without the instructions oneDNN has no kernel. Sets of instructions are bits.
  static const bool able = [] {
    const auto needed = static_cast<int>(dnnl::cpu_isa::avx512_core_bf16);
    return (static_cast<int>(dnnl::get_effective_cpu_isa()) & needed) == needed;
  }();
  return able && multiplied(a, b, c, finish, threads);
}

}  // namespace diffeo::products
