// The fused update is PyTorch's, to rounding.
#include "diffeo/trainers/optimizer.h"

#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "diffeo/layers/base/random.h"

namespace diffeo::testing {
namespace {

constexpr uint64_t seed = 3;
constexpr double learning_rate = 0.03;

std::vector<Tensor> parameters(torch::Dtype dtype) {
  const SeedGuard guard(seed);
  std::vector<Tensor> made;
  for (const auto& shape : std::vector<std::vector<int64_t>>{{7, 5}, {5}, {}, {3, 1, 2}, {1000}})
    made.push_back(torch::randn(shape, torch::TensorOptions(dtype).requires_grad(true)));
  made.push_back(torch::randn({4, 6}, dtype).t().requires_grad_());  // not contiguous
  return made;
}

/// Not convex, and with gradients of very different sizes.
Tensor loss_of(const std::vector<Tensor>& parameters, int64_t step) {
  auto loss = torch::zeros({}, parameters[0].options());
  double size = 10;
  for (const auto& p : parameters) {
    loss = loss + size * ((p * (1 + 0.1 * step)).sin() + 0.3 * p.square()).sum();
    size *= 0.2;
  }
  return loss;
}

double norm_of(const std::vector<Tensor>& parameters) {
  auto sum = torch::zeros({}, torch::kFloat64);
  for (const auto& p : parameters) sum = sum + p.grad().to(torch::kFloat64).square().sum();
  return sum.sqrt().item<double>();
}

using Peer = std::function<std::unique_ptr<torch::optim::Optimizer>(const std::vector<Tensor>&)>;

struct Pair {
  std::string name;
  Optimizer::Options options;
  Peer peer;
};

std::vector<Pair> pairs() {
  using namespace torch::optim;
  const double lr = learning_rate;
  return {
      {"adam", {.type = "adam"}, [=](auto& p) { return std::make_unique<Adam>(p, AdamOptions(lr)); }},
      {"adam_decay",
       {.type = "adam", .weight_decay = 0.1},
       [=](auto& p) { return std::make_unique<Adam>(p, AdamOptions(lr).weight_decay(0.1)); }},
      {"adamw_decay",
       {.type = "adamw", .weight_decay = 0.1},
       [=](auto& p) { return std::make_unique<AdamW>(p, AdamWOptions(lr).weight_decay(0.1)); }},
      {"adam_clipped",
       {.type = "adam", .clip_norm = 5},
       [=](auto& p) { return std::make_unique<Adam>(p, AdamOptions(lr)); }},
      {"sgd", {.type = "sgd"}, [=](auto& p) { return std::make_unique<SGD>(p, SGDOptions(lr)); }},
      {"sgd_momentum_clipped",
       {.type = "sgd", .momentum = 0.9, .weight_decay = 0.01, .clip_norm = 2},
       [=](auto& p) { return std::make_unique<SGD>(p, SGDOptions(lr).momentum(0.9).weight_decay(0.01)); }},
  };
}

class OptimizerEquality : public ::testing::TestWithParam<torch::Dtype> {};

TEST_P(OptimizerEquality, FiftyStepsAreThoseOfPyTorch) {
  for (const auto& [name, options, make_peer] : pairs()) {
    SCOPED_TRACE(c10::str(name, ", seed ", seed));
    auto mine = parameters(GetParam()), theirs = parameters(GetParam());
    Optimizer optimizer(mine, options);
    const auto peer = make_peer(theirs);
    for (int step = 0; step < 50; ++step) {
      optimizer.zero_grad();
      loss_of(mine, step).backward();
      const double norm = optimizer.grad_norm().item<double>();
      optimizer.step(learning_rate, norm);
      peer->zero_grad();
      loss_of(theirs, step).backward();
      const double want = norm_of(theirs);
      EXPECT_NEAR(norm, want, 1e-5 * want);
      if (options.clip_norm > 0)
        for (auto& p : theirs) p.mutable_grad().mul_(std::min(1.0, options.clip_norm / (want + 1e-6)));
      peer->step();
    }
    const double tolerance = GetParam() == torch::kFloat64 ? 1e-10 : 2e-4;
    for (size_t i = 0; i < mine.size(); ++i)
      EXPECT_TRUE(torch::allclose(mine[i], theirs[i], tolerance, tolerance))
          << "parameter " << i << ", off by " << (mine[i] - theirs[i]).abs().max().item<double>();
  }
}

INSTANTIATE_TEST_SUITE_P(Both, OptimizerEquality, ::testing::Values(torch::kFloat32, torch::kFloat64));

TEST(Optimizer, AverageIsAnExponentialMean) {
  auto mine = parameters(torch::kFloat64);
  Optimizer optimizer(mine, {.average = 0.9});
  auto want = mine[4].detach().clone();
  for (int n = 1; n <= 200; ++n) {
    optimizer.zero_grad();
    loss_of(mine, n).backward();
    optimizer.step(learning_rate, 1);
    const double decay = std::min(0.9, (1.0 + n) / (10.0 + n));
    want = decay * want + (1 - decay) * mine[4].detach();
  }
  const auto now = mine[4].detach().clone();
  optimizer.swap_average();
  EXPECT_TRUE(torch::allclose(mine[4], want, 1e-12, 1e-12));
  EXPECT_FALSE(mine[4].equal(now));
  optimizer.swap_average();
  EXPECT_TRUE(mine[4].equal(now));
}

TEST(Optimizer, GoesOnFromItsStateBitForBit) {
  for (const auto* type : {"adam", "adamw", "sgd"}) {
    const Optimizer::Options options{.type = type, .momentum = 0.5, .weight_decay = 0.1, .average = 0.95};
    auto whole = parameters(torch::kFloat32);
    Optimizer first(whole, options);
    const auto run = [](Optimizer& optimizer, const std::vector<Tensor>& p, int from, int to) {
      for (int step = from; step < to; ++step) {
        optimizer.zero_grad();
        loss_of(p, step).backward();
        optimizer.step(learning_rate, 1);
      }
    };
    run(first, whole, 0, 7);
    const auto state = first.state();
    std::vector<Tensor> values;
    for (const auto& p : whole) values.push_back(p.detach().clone().requires_grad_());
    run(first, whole, 7, 20);
    Optimizer second(values, options);
    second.load(state);
    run(second, values, 7, 20);
    for (size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(whole[i].equal(values[i])) << type << i;
    first.swap_average();
    second.swap_average();
    for (size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(whole[i].equal(values[i])) << type << i;
  }
}

TEST(Optimizer, BothPrecisionsAtOnce) {
  const auto a = torch::full({3}, 2.0, torch::TensorOptions(torch::kFloat32).requires_grad(true));
  const auto b = torch::full({2}, 2.0, torch::TensorOptions(torch::kFloat64).requires_grad(true));
  Optimizer optimizer({a, b}, {.type = "sgd"});
  (a.sum() + 3 * b.sum()).backward();
  EXPECT_NEAR(optimizer.grad_norm().item<double>(), std::sqrt(3.0 + 18.0), 1e-6);
  optimizer.step(0.5, 1);
  EXPECT_TRUE(a.equal(torch::full({3}, 1.5)));
  EXPECT_TRUE(b.equal(torch::full({2}, 0.5, torch::kFloat64)));
}

template <class Act>
std::string message_of(Act&& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Optimizer, SaysWhatIsWrong) {
  const auto p = parameters(torch::kFloat32);
  EXPECT_EQ(message_of([&] { Optimizer(p, {.type = "adma"}); }).find("optimizer: "), 0u);
  EXPECT_EQ(message_of([&] { Optimizer(p, {.momentum = 1}); }), "momentum: must be at least 0 and less than 1, got 1");
  EXPECT_EQ(message_of([&] { Optimizer(p, {.weight_decay = -1}); }),
            "weight_decay: must be a finite number of at least 0, got -1");
  EXPECT_EQ(message_of([&] { Optimizer({}, {}); }), "optimizer: there is no parameter to learn");
  EXPECT_EQ(message_of([&] {
              Optimizer({torch::zeros({2}, torch::kFloat16).requires_grad_(), p[0]}, {});
            }),
            "optimizer: parameters must be float32 or float64, got Half");

  Optimizer adam(p, {}), other(parameters(torch::kFloat64), {});
  EXPECT_EQ(message_of([&] { adam.load(other.state()); }), "optimizer: the state has no 'float32/first_moment'");
  auto state = adam.state();
  state[0].second = torch::zeros({3});
  EXPECT_NE(message_of([&] { adam.load(state); }).find("'float32/first_moment' of the state is Float [3], expected"),
            std::string::npos);

  auto replaced = p[0];
  replaced.set_data(torch::zeros_like(p[0]));
  EXPECT_NE(message_of([&] { adam.step(0.1, 1); }).find("of shape [7, 5] was replaced"), std::string::npos);
}

}  // namespace
}  // namespace diffeo::testing
