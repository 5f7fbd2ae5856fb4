// What the machine can do, on one thread, for comparison with the kernels' bytes and operations per second: copies
// within each cache and beyond (bytes read and written), a large matrix product by oneDNN, and the vector units alone.
#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>

#include <cstring>

#include "diffeo/bench/bare_products.h"

namespace {

using namespace diffeo::bench;

void copy(benchmark::State& state) {
  const std::vector<char> from(state.range(0) / 2, 1);
  std::vector<char> to(from.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(copy)->Name("limits/copy")->Arg(32 << 10)->Arg(512 << 10)->Arg(8 << 20)->Arg(512 << 20);

void product(benchmark::State& state) {
  at::set_num_threads(1);
  const auto n = state.range(0);
  const auto call =
      product_call(Product::forward, Library::onednn, at::randn({n, n}), at::randn({n, n}), at::randn({n, n}));
  if (!call) return state.SkipWithError("oneDNN has no kernel that we take on this machine");
  for (auto _ : state) call();
  state.counters["flops"] = {2.0 * static_cast<double>(n * n * n), benchmark::Counter::kIsIterationInvariantRate};
}
BENCHMARK(product)->Name("limits/product")->Arg(512)->Arg(1024);

#ifdef __x86_64__
using Lanes [[gnu::vector_size(64)]] = float;

/// Independent fused multiplications and additions in registers, as many as hide each other's latency.
[[gnu::target("avx512f,fma"), gnu::optimize("O3,fp-contract=fast")]] void multiply_add(benchmark::State& state) {
  constexpr int chains = 12, repeats = 1024;
  Lanes sums[chains] = {}, factor = Lanes{} + 0.5f, term = Lanes{} + 1.f;
  for (auto _ : state) {
    for (int i = 0; i < repeats; ++i)
#pragma GCC unroll 12
      for (auto& sum : sums) sum = sum * factor + term;
    benchmark::DoNotOptimize(sums);
  }
  state.counters["flops"] = {2.0 * 16 * chains * repeats, benchmark::Counter::kIsIterationInvariantRate};
}
const bool registered = [] {
  if (__builtin_cpu_supports("avx512f")) benchmark::RegisterBenchmark("limits/multiply_add/avx512", multiply_add);
  return true;
}();
#endif

}  // namespace

BENCHMARK_MAIN();
