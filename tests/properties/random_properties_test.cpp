// Every registered random layer, in every precision: its log determinant makes importance weights of mean 1, both ways,
// and what holds for other layers holds for it with the random numbers held fixed.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <cmath>

#include "diffeo/flows/flow.h"
#include "diffeo/flows/normal.h"
#include "diffeo/layers/base/random.h"
#include "diffeo/layers/sequential/sequential.h"
#include "properties/cases.h"

namespace diffeo::testing {
namespace {

constexpr uint64_t seed = 17;  // of all random numbers in this file

class RandomLayerProperties : public ::testing::TestWithParam<Case> {
 protected:
  RandomLayerProperties() : layer(build(GetParam())) { torch::manual_seed(seed); }

  torch::TensorOptions options() const { return torch::TensorOptions(GetParam().dtype).device(GetParam().device); }
  Tensor points(std::vector<int64_t> batch) const { return points_in(layer->domain(), std::move(batch), options()); }
  Tensor arrivals(std::vector<int64_t> batch) const {
    return points_in(layer->codomain(), std::move(batch), options());
  }
  /// A Markov kernel, which moves points where they are; another layer goes to a space of more dimensions.
  bool is_kernel() const { return layer->domain().same_as(layer->codomain()); }
  /// The same random numbers each time.
  Mapped again(Layer& one, const Tensor& x, bool forward = true) const {
    torch::manual_seed(seed);
    return forward ? one.forward(x) : one.inverse(x);
  }
  LayerPtr in_double() const {
    auto copy = clone(*layer);
    copy->to(torch::kFloat64);
    return copy;
  }

  LayerPtr layer;
};

TEST_P(RandomLayerProperties, SaysThatItIsRandom) {
  EXPECT_TRUE(layer->traits().random);
  const auto x = points({64});
  EXPECT_FALSE(torch::equal(layer->forward(x).value, layer->forward(x).value));
}

// E[p_b(y)/p_a(x) exp(log_det)] = 1 for normalised p_a and p_b: a log_det of the wrong sign, size or moment fails it.
TEST_P(RandomLayerProperties, MeanImportanceWeightIsOneBothWays) {
  torch::NoGradGuard no_grad;
  const double wide = 1.2, narrow = 1.0;
  const auto log_normal = [&](const Tensor& x, double scale) {
    return standard_normal_log_prob(x / scale) - static_cast<double>(x.size(-1)) * std::log(scale);
  };
  for (const bool forward : {true, false}) {
    const auto size = (forward ? layer->domain() : layer->codomain()).size();
    const auto x = wide * torch::randn({100000, size}, options());
    const auto [y, log_det] = forward ? layer->forward(x) : layer->inverse(x);
    const auto weight = (log_normal(y, narrow) - log_normal(x, wide) + log_det).to(torch::kFloat64).exp();
    const double mean = weight.mean().item<double>(),
                 error = weight.std().item<double>() / std::sqrt(static_cast<double>(weight.numel()));
    EXPECT_NEAR(mean, 1, 4 * error) << (forward ? "forward" : "inverse") << ", seed " << seed;
    EXPECT_LT(error, 0.05) << "the weights scatter too much to say anything";
  }
}

TEST_P(RandomLayerProperties, ShapesAreThoseOfTheBatch) {
  for (auto batch : std::vector<std::vector<int64_t>>{{}, {1}, {16}, {3, 4}, {0}}) {
    for (const bool forward : {true, false}) {
      const auto x = forward ? points(batch) : arrivals(batch), like = forward ? arrivals(batch) : points(batch);
      const auto [y, log_det] = forward ? layer->forward(x) : layer->inverse(x);
      EXPECT_EQ(y.sizes(), like.sizes());
      EXPECT_EQ(log_det.sizes(), at::IntArrayRef(batch));
      EXPECT_EQ(y.scalar_type(), x.scalar_type());
      EXPECT_EQ(log_det.scalar_type(), x.scalar_type());
      EXPECT_EQ(y.device().type(), x.device().type());
    }
  }
}

TEST_P(RandomLayerProperties, BothDirectionsRunTheSameKernelOrUndoEachOther) {
  const auto x = points({50});
  if (!is_kernel()) {
    const auto there = layer->forward(x), back = layer->inverse(there.value);
    const double near = tolerance(GetParam().dtype);
    EXPECT_TRUE(torch::equal(back.value, x));
    EXPECT_TRUE(torch::allclose(back.log_det, -there.log_det, near, near));
    return;
  }
  const auto there = again(*layer, x, true), back = again(*layer, x, false);
  EXPECT_TRUE(torch::equal(there.value, back.value) && torch::equal(there.log_det, back.log_det));
}

TEST_P(RandomLayerProperties, StridesDoNotMatter) {
  const auto x = points({6});
  const auto want = again(*layer, x);
  const auto got = again(*layer, torch::stack({x, x}, -1).select(-1, 1));
  EXPECT_TRUE(torch::allclose(got.value, want.value, 1e-4, 1e-4));
  EXPECT_TRUE(torch::allclose(got.log_det, want.log_det, 1e-3, 1e-3));
}

TEST_P(RandomLayerProperties, WrongArgumentsAreRefused) {
  const auto other = GetParam().dtype == torch::kFloat32 ? torch::kFloat64 : torch::kFloat32;
  EXPECT_THROW(layer->forward(torch::zeros({2, 99}, options())), Error);
  EXPECT_THROW(layer->inverse(arrivals({2}).to(other)), Error);
  EXPECT_THROW(layer->forward(points({2}), torch::zeros({2, 1}, options())), Error);
}

TEST_P(RandomLayerProperties, SpecRebuildsTheLayerAndCloneIsDeep) {
  const auto spec = layer->spec();
  EXPECT_EQ(build_layer(spec)->spec(), spec);
  EXPECT_EQ(spec["type"], GetParam().spec["type"]);
  const auto copy = clone(*layer);
  const auto x = points({20});
  const auto before = again(*layer, x), same = again(*copy, x);
  EXPECT_TRUE(torch::equal(same.value, before.value) && torch::equal(same.log_det, before.log_det));
  {
    torch::NoGradGuard no_grad;
    for (auto& [name, tensor] : named_state(*copy)) Tensor(tensor).add_(1);
  }
  EXPECT_TRUE(torch::equal(again(*layer, x).value, before.value));
}

TEST_P(RandomLayerProperties, GradientsAreThoseOfFixedRandomNumbers) {
  const auto exact = in_double();
  const auto x = points({16}).to(torch::kFloat64).requires_grad_();
  const auto weights = torch::arange(1, layer->codomain().size() + 1, x.options());
  const auto loss = [&](const Tensor& at) {
    const auto [y, log_det] = again(*exact, at);
    return (y.sin() * weights).sum() + log_det.sin().sum();
  };
  auto inputs = exact->parameters();
  inputs.insert(inputs.begin(), x);
  const auto grads = torch::autograd::grad({loss(x)}, inputs, {}, {}, false, true);
  for (size_t i = 0; i < inputs.size(); ++i) {
    ASSERT_TRUE(grads[i].defined()) << "input " << i;
    EXPECT_TRUE(grads[i].isfinite().all().item<bool>());
    EXPECT_GT(grads[i].abs().max().item<double>(), 0);
  }
  // Differences see the same accepted proposals as long as the step is small enough not to change them.
  torch::NoGradGuard no_grad;
  for (auto& input : inputs) {
    const size_t i = &input - inputs.data();
    const auto direction = torch::randn_like(input);
    const double step = 1e-7;
    const auto at_start = input.clone();
    input.add_(direction, step);
    const double up = loss(x).item<double>();
    input.copy_(at_start - step * direction);
    const double down = loss(x).item<double>();
    input.copy_(at_start);
    const double slope = (grads[i] * direction).sum().item<double>();
    EXPECT_NEAR((up - down) / (2 * step), slope, 1e-4 * (1 + std::abs(slope))) << "input " << i;
  }
}

TEST_P(RandomLayerProperties, NothingIsEverNaN) {
  for (double scale : {1.0, 30.0, 1000.0}) {
    const auto x = (points({64}) * scale).requires_grad_();
    const auto [y, log_det] = layer->forward(x);
    EXPECT_FALSE(y.isnan().any().item<bool>());
    EXPECT_FALSE(log_det.isnan().any().item<bool>()) << scale;
    const auto grad = torch::autograd::grad({y.sum() + log_det.sum()}, {x}, {}, {}, false, true)[0];
    if (grad.defined()) EXPECT_FALSE(grad.isnan().any().item<bool>()) << scale;
  }
}

TEST_P(RandomLayerProperties, FlowRefusesADensityAndBoundsIt) {
  Flow flow(layer, std::make_shared<Normal>(Normal::Options{.features = layer->codomain().size()}));
  flow.base()->to(options().device(), GetParam().dtype);
  flow.to(options().device(), GetParam().dtype);
  const auto x = points({8});
  try {
    flow.log_prob(x);
    FAIL() << "a density of random layers";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("log_prob_bound"), std::string::npos) << error.what();
  }
  EXPECT_EQ(flow.log_prob_bound(x, {}, 3).sizes(), at::IntArrayRef({8}));
  EXPECT_THROW(flow.log_prob_bound(x, {}, 0), Error);
}

TEST_P(RandomLayerProperties, WaysOfSavingMemoryGiveTheSameGradients) {
  if (GetParam().dtype != torch::kFloat64) return;
  layer->train();
  const auto gradients = [&](Memory memory) {
    const auto fresh = clone(*layer);
    fresh->train();
    Sequential chain(std::vector<LayerPtr>{
        fresh,
        build_layer({{"type", "elementwise"}, {"features", layer->codomain().size()}, {"map", {{"type", "affine"}}}})});
    chain.to(GetParam().device, torch::kFloat64);
    chain.set_memory(memory);
    torch::manual_seed(seed);
    const auto x = points({16}).requires_grad_();
    const auto [y, log_det] = chain.forward(x);
    auto inputs = chain.parameters();
    inputs.push_back(x);
    auto grads = torch::autograd::grad({y.sin().sum() + log_det.sum()}, inputs, {}, {}, false, true);
    for (const auto& buffer : chain.buffers()) grads.push_back(buffer.clone());
    return grads;
  };
  const auto want = gradients(Memory::normal);
  for (const auto memory : {Memory::checkpoint, Memory::constant}) {
    const auto got = gradients(memory);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(torch::allclose(got[i], want[i], 1e-9, 1e-9)) << "gradient or buffer " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Every, RandomLayerProperties, ::testing::ValuesIn(random_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace diffeo::testing
