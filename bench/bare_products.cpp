#include "diffeo/bench/bare_products.h"

#include <ATen/Parallel.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "diffeo/layers/base/error.h"
#include "diffeo/layers/nets/products.h"

namespace diffeo::bench {
namespace {

products::Matrix<float> matrix(const Tensor& t) {
  return {t.mutable_data_ptr<float>(), t.size(0), t.size(1), t.stride(0), t.stride(1)};
}

constexpr Times never{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};

void lower(Times& best, const Times& other) {
  best.cpu = std::min(best.cpu, other.cpu);
  best.wall = std::min(best.wall, other.wall);
}

}  // namespace

std::vector<LinearMap> linear_maps(const torch::nn::Module& module) {
  std::vector<LinearMap> maps;
  int64_t seen = 0, all = 0;
  for (const auto& parameter : module.named_parameters()) {
    const auto name = parameter.key().substr(parameter.key().rfind('.') + 1);
    const auto& value = parameter.value();
    all += value.numel();
    if ((name != "weight" && name != "lu") || value.dim() != 2) continue;
    maps.push_back({value.size(1), value.size(0)});
    seen += value.numel();
  }
  check(10 * seen > 9 * all, "bare products: the matrices found have ", seen, " of the module's ", all, " parameters");
  return maps;
}

std::string to_string(Product product) {
  return product == Product::forward ? "forward" : product == Product::by_input ? "by_input" : "by_weight";
}

std::string to_string(Library library) {
  return library == Library::onednn ? "onednn" : library == Library::diffeo ? "diffeo" : "libtorch";
}

std::function<void()> product_call(Product product, Library library, const Tensor& rows_in, const Tensor& weight,
                                   const Tensor& rows_out) {
  const auto [a, b, c] = product == Product::forward    ? std::tuple(rows_in, weight.t(), rows_out)
                         : product == Product::by_input ? std::tuple(rows_out, weight, rows_in)
                                                        : std::tuple(rows_out.t(), rows_in, weight);
  if (library == Library::libtorch)
    return [=, c = c] {
      const at::NoGradGuard no_grad;
      auto into = c;
      at::mm_out(into, a, b);
    };
  const auto ma = matrix(a), mb = matrix(b), mc = matrix(c);
  // The tensors are captured too, for they own the memory.
  if (library == Library::diffeo) return [=, owners = std::tuple(a, b, c)] { products::multiply(ma, mb, mc); };
  const auto by_onednn = [=, owners = std::tuple(a, b, c)] {
    return products::multiply_by_onednn(ma, mb, mc, {}, at::get_num_threads());
  };
  if (!by_onednn()) return {};
  return by_onednn;
}

BareProducts::BareProducts(const std::vector<LinearMap>& maps, int64_t rows) {
  for (size_t i = 0; i < maps.size(); ++i)
    for (const auto product : {Product::forward, Product::by_input, Product::by_weight}) {
      if (i == 0 && product == Product::by_input) continue;
      const auto [inputs, outputs] = maps[i];
      auto& entry = entries_[{maps[i], product}];
      if (entry.count++ > 0) continue;
      const auto in = at::randn({rows, inputs}), weight = at::randn({outputs, inputs}),
                 out = at::randn({rows, outputs});
      entry.operations = 2.0 * static_cast<double>(rows * inputs * outputs);
      entry.best = never;
      for (const auto library : {Library::onednn, Library::diffeo, Library::libtorch})
        if (const auto call = product_call(product, library, in, weight, out))
          entry.candidates.push_back({call, never});
    }
}

void BareProducts::measure() {
  for (auto& [key, entry] : entries_)
    for (auto& candidate : entry.candidates) {
      if (std::isfinite(candidate.best.wall) && candidate.best.wall > 1.5 * entry.best.wall) continue;
      for (int i = 0; i < 4; ++i) {
        const auto start = now();
        candidate.call();
        lower(candidate.best, since(start));
      }
      lower(entry.best, candidate.best);
    }
}

Times BareProducts::best() const {
  Times sum{0, 0};
  for (const auto& [key, entry] : entries_) {
    sum.cpu += entry.count * entry.best.cpu;
    sum.wall += entry.count * entry.best.wall;
  }
  return sum;
}

double BareProducts::operations() const {
  double sum = 0;
  for (const auto& [key, entry] : entries_) sum += entry.count * entry.operations;
  return sum;
}

}  // namespace diffeo::bench
