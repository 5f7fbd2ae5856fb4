// What the volume costs: a step of the free-form injective objective against one of the autoencoder with the same
// networks and the same loss without the volume, at the size of images of 28 x 28 pixels. CPU time on one thread, the
// two in turn within one run.
#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "accept.h"
#include "diffeo/flows/recipes.h"
#include "diffeo/layers/base/tangents.h"
#include "diffeo/trainers/free_form_injective.h"

namespace {

using namespace diffeo;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// CPU seconds of a loss and its gradient.
template <class Loss>
double step(Flow& flow, Loss&& loss) {
  for (auto& parameter : flow.parameters()) parameter.mutable_grad() = Tensor();
  const double begin = diffeo::testing::cpu_seconds();
  loss().backward();
  return diffeo::testing::cpu_seconds() - begin;
}

}  // namespace

int main() {
  at::set_num_threads(1);
  torch::manual_seed(1);
  const auto flow = build_flow(recipe("injective", {.features = 784, .latent = 16, .width = 256, .depth = 3}));
  constexpr double beta = 10;
  FreeFormInjective objective(flow, {.beta = beta});
  auto& layers = *flow->layers();
  const Batch batch{.x = torch::randn({512, 784})};
  const auto autoencoder = [&] {
    const auto z = forward_value(layers, batch.x), back = inverse_value(layers, z);
    return (beta * (batch.x - back).square().sum(-1) - flow->base()->log_prob(z)).mean();
  };
  std::vector<double> plain, injective;
  for (int round = 0; round < 40; ++round) {
    plain.push_back(step(*flow, autoencoder));
    injective.push_back(step(*flow, [&] { return objective.loss(batch); }));
  }
  std::printf("autoencoder %.2f ms, injective %.2f ms of CPU time a step (median of 40, batch 512)\n",
              1e3 * median(plain), 1e3 * median(injective));
  diffeo::testing::Acceptance accept;
  accept.at_most("injective_step_over_autoencoder", median(injective) / median(plain), 2.5);
  return accept.exit_code();
}
