// Memory and time of a training step at 4 and at 64 layers, by what the backward pass is left with (Memory). Bytes are
// those of all tensors: parameters, gradients, moments of Adam and everything that the step itself makes. One thread.
#include <ATen/Parallel.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "diffeo/flows/recipes.h"
#include "diffeo/layers/base/memory.h"
#include "diffeo/layers/base/peak_memory.h"
#include "diffeo/trainers/objective.h"
#include "diffeo/trainers/optimizer.h"

namespace {

using namespace diffeo;

constexpr int64_t features = 8, width = 64, batch_size = 32768;

/// A training run of a neural spline flow with halves for masks, two hidden layers, and LU maps between.
class Training {
 public:
  Training(int64_t layers, Memory memory)
      : flow_(build_flow(recipe("nsf", {.features = features,
                                        .layers = layers,
                                        .width = width,
                                        .depth = 2,
                                        .net = "mlp",
                                        .bins = 8,
                                        .bound = 3,
                                        .linear = "lu"}))),
        objective_(flow_),
        optimizer_(objective_.parameters(), {}) {
    flow_->set_memory(memory);
  }

  /// CPU time: other work on the machine does not count.
  double seconds_of_step() {
    const auto start = std::clock();
    optimizer_.zero_grad();
    objective_.loss(batch_).backward();
    optimizer_.step(1e-4, optimizer_.grad_norm().item<double>());
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  }

 private:
  FlowPtr flow_;
  MaximumLikelihood objective_;
  Optimizer optimizer_;
  Batch batch_{.x = torch::randn({batch_size, features}), .context = {}, .weight = {}, .label = {}};
};

double peak_megabytes(int64_t layers, Memory memory) {
  const PeakMemory watch;
  Training training(layers, memory);
  for (int i = 0; i < 2; ++i) training.seconds_of_step();
  return static_cast<double>(watch.peak()) / 1e6;
}

}  // namespace

int main() {
  keep_freed_memory();  // as the program diffeo does
  at::set_num_threads(1);
  torch::manual_seed(0);
  const std::vector<std::pair<const char*, Memory>> modes{
      {"normal", Memory::normal}, {"checkpoint", Memory::checkpoint}, {"constant", Memory::constant}};
  std::printf("| memory | 4 layers, MB | 64 layers, MB | ratio | step at 64 layers, s | to normal |\n");
  std::printf("| --- | --- | --- | --- | --- | --- |\n");
  std::vector<std::pair<double, double>> peaks;
  for (const auto& [name, memory] : modes) peaks.emplace_back(peak_megabytes(4, memory), peak_megabytes(64, memory));
  std::vector<double> best(modes.size(), 1e9);
  for (int round = 0; round < 2; ++round)  // in turn: other work on the machine meets all of them
    for (size_t i = 0; i < modes.size(); ++i) {
      Training training(64, modes[i].second);
      for (int step = 0; step < 2; ++step) best[i] = std::min(best[i], training.seconds_of_step());
    }
  for (size_t i = 0; i < modes.size(); ++i)
    std::printf("| %s | %.0f | %.0f | %.2f | %.2f | %.2f |\n", modes[i].first, peaks[i].first, peaks[i].second,
                peaks[i].second / peaks[i].first, best[i], best[i] / best[0]);
}
