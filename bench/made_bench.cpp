// Densities and samples of masked autoregressive flows: the reference work maf_mini (43 features, 5 layers, width 256),
// with residual networks of two blocks as nflows has it, and two hidden layers as zuko has it. 4096 rows, one thread.
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <torch/types.h>

#include "diffeo/flows/recipes.h"
#include "diffeo/layers/nets/made.h"
#include "diffeo/trainers/objective.h"
#include "diffeo/trainers/optimizer.h"

namespace {

using namespace diffeo;

FlowPtr flow_of(const std::string& recipe_name, const std::string& net) {
  torch::manual_seed(0);
  RecipeOptions options{.features = 43, .layers = 5, .width = 256, .depth = 2, .net = net};
  auto flow = build_flow(recipe(recipe_name, options));
  flow->eval();
  return flow;
}

void log_prob(benchmark::State& state, const std::string& recipe_name, const std::string& net) {
  const auto flow = flow_of(recipe_name, net);
  torch::NoGradGuard no_grad;
  const auto x = torch::randn({state.range(0), 43});
  for (auto _ : state) benchmark::DoNotOptimize(flow->log_prob(x));
}

void sample(benchmark::State& state, const std::string& recipe_name, const std::string& net) {
  const auto flow = flow_of(recipe_name, net);
  for (auto _ : state) benchmark::DoNotOptimize(flow->sample({state.range(0)}));
}

/// Forward and backward of the networks alone.
void net_step(benchmark::State& state, const std::string& recipe_name, const std::string& net) {
  torch::manual_seed(0);
  std::vector<NetPtr> nets;
  for (int64_t i = 0; i < 5; ++i)
    nets.push_back(
        build_made({.type = net, .width = 256}, {feature_degrees("natural", 43, 0), 0, recipe_name == "maf" ? 2 : 23}));
  const auto x = torch::randn({state.range(0), 43}).requires_grad_();
  for (auto _ : state)
    for (const auto& one : nets) {
      const auto out = one->forward(x);
      out.backward(out.detach());
    }
}

void step(benchmark::State& state, const std::string& recipe_name, const std::string& net) {
  MaximumLikelihood objective(flow_of(recipe_name, net));
  Optimizer optimizer(objective.parameters(), {});
  const Batch batch{.x = torch::randn({state.range(0), 43}), .context = {}, .weight = {}, .label = {}};
  for (auto _ : state) {
    optimizer.zero_grad();
    objective.loss(batch).backward();
    optimizer.step(1e-4, optimizer.grad_norm().item<double>());
  }
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  for (const std::string name : {"maf", "nsf-ar"})
    for (const std::string net : {"residual", "mlp"}) {
      const auto add = [&](const std::string& what, const auto& f, int64_t rows) {
        benchmark::RegisterBenchmark((what + "/" + name + "/" + net).c_str(), f, name, net)
            ->Arg(rows)
            ->Unit(benchmark::kMillisecond);
      };
      add("log_prob", log_prob, 4096);
      add("sample", sample, 4096);
      add("sample", sample, 1);
      add("nets", net_step, 256);
      add("step", step, 256);
    }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
