// One training step (forward, backward, Adam) of the reference works: neural spline flows in nflows' architecture
// (alternating masks, residual conditioners of two blocks, LU maps with permutations, a spline on the kept features
// too) and in zuko's (halves, two hidden layers, permutations). One thread; bench/peers.py sets it beside the peers.
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <torch/types.h>

#include "diffeo/flows/recipes.h"
#include "diffeo/trainers/objective.h"
#include "diffeo/trainers/optimizer.h"

namespace {

using namespace diffeo;

struct Work {
  const char* name;
  int64_t features, layers, width, batch;
};
constexpr Work works[] = {
    {"nsfc_power", 6, 10, 256, 512}, {"nsfc_mini", 43, 10, 128, 256}, {"nsfc_small", 8, 6, 64, 1024}};

FlowPtr flow_of(const Work& work, const std::string& like) {
  RecipeOptions options{
      .features = work.features, .layers = work.layers, .width = work.width, .depth = 2, .bins = 8, .bound = 3};
  options.net = like == "zuko" ? "mlp" : "residual";
  options.mask = like == "zuko" ? "half" : "alternating";
  options.linear = like == "zuko" ? "permutation" : "lu";
  return build_flow(recipe("nsf", options));
}

int64_t count_of(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const auto& parameter : module.parameters()) count += parameter.numel();
  return count;
}

void step(benchmark::State& state, const Work& work, const std::string& like) {
  torch::manual_seed(0);
  MaximumLikelihood objective(flow_of(work, like));
  Optimizer optimizer(objective.parameters(), {});
  const Batch batch{.x = torch::randn({work.batch, work.features}), .context = {}, .weight = {}, .label = {}};
  for (auto _ : state) {
    optimizer.zero_grad();
    objective.loss(batch).backward();
    optimizer.step(1e-4, optimizer.grad_norm().item<double>());
  }
  state.counters["parameters"] = static_cast<double>(count_of(objective));
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  for (const auto& work : works)
    for (const std::string like : {"nflows", "zuko"})
      benchmark::RegisterBenchmark((std::string("step/") + work.name + "/" + like).c_str(), step, work, like)
          ->Unit(benchmark::kMillisecond);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
