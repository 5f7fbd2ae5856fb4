// What one element of the spline costs, by instruction set, type, number of bins and direction, with rows (items) and
// bytes per second (bench/limits_bench.cpp says what the machine can do). One thread.
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "diffeo/layers/base/cpu_capability.h"
#include "diffeo/layers/rq_spline/rq_spline_op.h"

namespace {

using namespace diffeo;
using namespace diffeo::rq_spline;
using torch::Tensor;

struct Setting {
  CpuCapability capability;
  torch::Dtype dtype;
  int64_t bins;
  bool shared, inverse, backward;

  std::string name() const {
    return c10::str(inverse ? "inverse" : "forward", backward ? "_backward" : "", "/", to_string(capability), "/",
                    dtype == torch::kFloat32 ? "float32" : "float64", "/bins:", bins, shared ? "/shared" : "");
  }
};

/// What every spline counts: nanoseconds for each element, rows, and the bytes that it cannot avoid to read or write.
void count(benchmark::State& state, const torch::Tensor& x, const torch::Tensor& parameters, bool backward) {
  state.counters["per_element"] = benchmark::Counter(
      static_cast<double>(x.numel()), benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  state.SetItemsProcessed(state.iterations() * x.size(0));
  // Forward: x, parameters in; values, log-dets out. Backward: those in again, with two gradients; as many out as in.
  const auto values = x.numel(), log_dets = x.size(0);
  const auto numbers =
      backward ? 3 * values + log_dets + 2 * parameters.numel() : 2 * values + log_dets + parameters.numel();
  state.SetBytesProcessed(state.iterations() * numbers * static_cast<int64_t>(x.element_size()));
}

/// Parameters of their own for 1024 x 4 elements, or one set for each of four columns.
void spline(benchmark::State& state, const Setting& setting) {
  const CpuCapabilityGuard guard(setting.capability);
  const Shape shape{setting.bins, Tails::linear, -3, 3, -3, 3, 1e-3, 1e-3, 1e-3};
  torch::manual_seed(0);
  const auto x = torch::randn({1024, 4}, setting.dtype).requires_grad_(setting.backward);
  const auto raw = torch::randn({1024, 4, shape.parameters()}, setting.dtype);
  const auto parameters = (setting.shared ? raw[0].clone() : raw).requires_grad_(setting.backward);
  if (setting.backward) {
    const auto [value, log_det] = apply(x, parameters, shape, setting.inverse);
    const auto by_value = torch::randn_like(value), by_log_det = torch::randn_like(log_det);
    for (auto _ : state) torch::autograd::grad({value, log_det}, {x, parameters}, {by_value, by_log_det}, true);
  } else {
    for (auto _ : state) benchmark::DoNotOptimize(apply(x, parameters, shape, setting.inverse));
  }
  count(state, x, parameters, setting.backward);
}

/// The same in plain tensor operations.
void composed(benchmark::State& state, bool backward) {
  const Shape shape{8, Tails::linear, -3, 3, -3, 3, 1e-3, 1e-3, 1e-3};
  torch::manual_seed(0);
  const auto x = torch::randn({1024, 4}).requires_grad_(backward);
  const auto raw = torch::randn({1024, 4, shape.parameters()}).requires_grad_(backward);
  for (auto _ : state) {
    const auto [value, log_det] = reference(x, raw, shape, false);
    if (backward) torch::autograd::grad({value.sum() + log_det.sum()}, {x, raw});
  }
  count(state, x, raw, backward);
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  for (const auto capability : cpu_capabilities())
    for (const auto dtype : {torch::kFloat32, torch::kFloat64})
      for (const int64_t bins : {4, 8, 10, 16, 32})
        for (const bool shared : {false, true})
          for (const bool inverse : {false, true})
            for (const bool backward : {false, true}) {
              const Setting setting{capability, dtype, bins, shared, inverse, backward};
              if (shared && bins != 8) continue;
              benchmark::RegisterBenchmark(("rq_spline/" + setting.name()).c_str(), spline, setting);
            }
  benchmark::RegisterBenchmark("rq_spline/composed/forward/bins:8", composed, false);
  benchmark::RegisterBenchmark("rq_spline/composed/forward_and_backward/bins:8", composed, true);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
