// What an LU linear map costs in a training step, forward and backward: one node, and composed of plain tensor
// operations. One thread.
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "diffeo/layers/linear/lu_op.h"

namespace {

using namespace diffeo;
using torch::Tensor;

void lu_map(benchmark::State& state, int64_t rows, int64_t features, bool inverse, bool fused) {
  torch::manual_seed(0);
  const auto x = torch::randn({rows, features}).requires_grad_(), bias = torch::randn({features}).requires_grad_(),
             matrix = (torch::eye(features) + 0.1 * torch::randn({features, features})).requires_grad_();
  const auto order = torch::randperm(features, torch::kLong);
  const auto by_value = torch::randn({rows, features}), by_log_det = torch::randn({rows});
  for (auto _ : state) {
    const auto [value, log_det] = (fused ? lu::apply : lu::reference)(x, matrix, bias, order, inverse);
    torch::autograd::grad({value, log_det}, {x, matrix, bias}, {by_value, by_log_det});
  }
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  for (const auto [rows, features] : {std::pair<int64_t, int64_t>{256, 6}, {1024, 8}, {256, 43}, {1024, 64}})
    for (const bool inverse : {false, true})
      for (const bool fused : {true, false})
        benchmark::RegisterBenchmark(
            c10::str("lu/", fused ? "fused/" : "composed/", inverse ? "inverse/" : "forward/", rows, "x", features)
                .c_str(),
            lu_map, rows, features, inverse, fused);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
