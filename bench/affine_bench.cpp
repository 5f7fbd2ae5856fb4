// What the affine map costs, fused and composed of plain tensor operations, by direction, type and batch. One thread.
// `rows` and `bytes` are those of one second; bytes count every number that has to be read or written once.
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "diffeo/layers/affine/affine_op.h"
#include "diffeo/layers/base/cpu_capability.h"

namespace {

using namespace diffeo;
using namespace diffeo::affine;
using torch::Tensor;

struct Setting {
  int64_t rows, columns;
  torch::Dtype dtype;
  Scale scale;
  bool shared, inverse, backward, fused;

  std::string name() const {
    constexpr const char* scales[] = {"bounded", "exp", "sigmoid", "softplus"};
    return c10::str("affine/", fused ? "fused/" : "composed/", inverse ? "inverse" : "forward",
                    backward ? "_backward/" : "/", scales[static_cast<int>(scale)], "/",
                    dtype == torch::kFloat32 ? "float32/" : "float64/", rows, "x", columns, shared ? "/shared" : "");
  }
};

void affine_map(benchmark::State& state, const Setting& setting) {
  const Form form{setting.scale, 4};
  torch::manual_seed(0);
  const auto x = torch::randn({setting.rows, setting.columns}, setting.dtype).requires_grad_(setting.backward);
  const auto parameters = (setting.shared ? torch::randn({setting.columns, 2}, setting.dtype)
                                          : torch::randn({setting.rows, setting.columns, 2}, setting.dtype))
                              .requires_grad_(setting.backward);
  const auto run = [&] { return (setting.fused ? apply : reference)(x, parameters, form, setting.inverse); };
  if (setting.backward) {
    const auto [value, log_det] = run();
    const auto by_value = torch::randn_like(value), by_log_det = torch::randn_like(log_det);
    for (auto _ : state) torch::autograd::grad({value, log_det}, {x, parameters}, {by_value, by_log_det}, true);
  } else {
    for (auto _ : state) benchmark::DoNotOptimize(run());
  }
  const auto rows = static_cast<double>(setting.rows), elements = static_cast<double>(x.numel()),
             parameters_ = static_cast<double>(parameters.numel());
  const double numbers = setting.backward ? 3 * elements + rows + 2 * parameters_ : 2 * elements + rows + parameters_;
  const auto bytes = numbers * static_cast<double>(x.element_size());
  state.counters["rows"] = benchmark::Counter(rows, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["bytes"] = benchmark::Counter(bytes, benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  for (const auto [rows, columns] : {std::pair<int64_t, int64_t>{64, 4}, {1024, 4}, {1024, 32}, {16384, 32}})
    for (const auto dtype : {torch::kFloat32, torch::kFloat64})
      for (const auto scale : {Scale::bounded, Scale::exp, Scale::sigmoid, Scale::softplus})
        for (const bool shared : {false, true})
          for (const bool inverse : {false, true})
            for (const bool backward : {false, true})
              for (const bool fused : {true, false}) {
                const Setting setting{rows, columns, dtype, scale, shared, inverse, backward, fused};
                const bool usual = scale == Scale::bounded && dtype == torch::kFloat32 && !inverse;
                if (!usual && (rows != 1024 || columns != 32 || shared)) continue;
                benchmark::RegisterBenchmark(setting.name().c_str(), affine_map, setting);
              }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
