// A first flow: two moons, learned and sampled.
#include <diffeo/data/toy.h>
#include <diffeo/flows/recipes.h>
#include <diffeo/trainers/fit.h>

#include <iostream>

int main() {
  torch::manual_seed(0);
  auto data = diffeo::in_memory({.x = diffeo::toy("moons", 20000, 0)});
  auto flow = diffeo::build_flow(diffeo::recipe("nsf", {.features = 2, .layers = 4}));
  diffeo::MaximumLikelihood objective(flow);
  auto report = diffeo::fit(objective, *data, nullptr, {.steps = 1000});

  torch::NoGradGuard no_grad;
  auto [x, log_prob] = flow->draw({5});
  std::cout << "loss " << report.train_loss << " nats\n" << x << "\n" << log_prob << "\n";
}
