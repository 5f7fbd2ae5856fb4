// The matrix products of the reference works, by oneDNN and by LibTorch (MKL): floating-point operations and bytes of
// the matrices per second. One thread. bench/limits_bench.cpp says what the machine can do.
#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>

#include <set>

#include "diffeo/bench/bare_products.h"
#include "diffeo/bench/works.h"

namespace {

using namespace diffeo;
using namespace diffeo::bench;

void multiply(benchmark::State& state, const LinearMap& map, int64_t rows, Product product, Library library) {
  const auto in = at::randn({rows, map.inputs}), weight = at::randn({map.outputs, map.inputs}),
             out = at::randn({rows, map.outputs});
  const auto call = product_call(product, library, in, weight, out);
  if (!call) return state.SkipWithError("the library has no kernel that we take for this product");
  for (auto _ : state) call();
  const auto per_second = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["flops"] = {2.0 * static_cast<double>(rows * map.inputs * map.outputs), per_second};
  state.counters["rows"] = {static_cast<double>(rows), per_second};
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(sizeof(float)) *
                          (in.numel() + weight.numel() + out.numel()));
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  std::set<std::pair<int64_t, LinearMap>> seen;
  for (const auto& work : all_works())
    for (const auto& map : linear_maps(*flow_of(work, "plain"))) {
      if (!seen.insert({work.batch, map}).second) continue;
      for (const auto product : {Product::forward, Product::by_input, Product::by_weight})
        for (const auto library : {Library::onednn, Library::diffeo, Library::libtorch})
          benchmark::RegisterBenchmark(c10::str("products/", work.name, "/", work.batch, "x", map.inputs, "x",
                                                map.outputs, "/", to_string(product), "/", to_string(library))
                                           .c_str(),
                                       multiply, map, work.batch, product, library);
    }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
