// The shuffle of channels: exact to the bit, never in the likelihood's gradient, and a penalty with known minima.
#include "diffeo/layers/shuffle/eiw_shuffle.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <cmath>

#include "diffeo/flows/flow.h"
#include "diffeo/layers/base/penalty.h"
#include "diffeo/layers/shuffle/negentropy.h"
#include "diffeo/trainers/fit.h"

namespace diffeo::testing {
namespace {

constexpr auto seed = 11;

std::shared_ptr<EiwShuffle> shuffle(const std::string& order, std::vector<int64_t> shape = {8, 4, 6}) {
  torch::manual_seed(seed);
  return std::make_shared<EiwShuffle>(EiwShuffle::Options{.shape = std::move(shape), .order = order});
}

/// Makes the solver prefer channels in this order.
void prefer(EiwShuffle& layer, const std::vector<int64_t>& order) {
  torch::NoGradGuard no_grad;
  auto parameters = layer.named_parameters();
  parameters["solver_hidden"].fill_(1.0 / static_cast<double>(order.size()));
  for (size_t i = 0; i < order.size(); ++i)
    parameters["solver_out"][order[i]].fill_(0.1 * static_cast<double>(order.size() - i));
}

TEST(EiwShuffle, MovesChannelsToTheBitAndBack) {
  const auto layer = shuffle("eiw");
  const std::vector<int64_t> order{3, 0, 7, 5, 1, 2, 6, 4};
  prefer(*layer, order);
  EXPECT_TRUE(torch::equal(layer->order(), torch::tensor(order)));
  const auto x = torch::randn({5, 8, 4, 6});
  const auto [y, log_det] = layer->forward(x);
  EXPECT_TRUE(torch::equal(y, x.index_select(1, torch::tensor(order))));
  EXPECT_TRUE(torch::equal(layer->inverse(y).value, x));
  EXPECT_TRUE(torch::equal(log_det, torch::zeros({5})));
}

TEST(EiwShuffle, ANewOneIsThePlainSplit) {
  const auto layer = shuffle("eiw");
  const auto x = torch::randn({2, 8, 4, 6});
  EXPECT_TRUE(torch::equal(layer->forward(x).value, x));
  EXPECT_TRUE(torch::equal(shuffle("static")->forward(x).value, x));
}

TEST(EiwShuffle, EqualWeightsKeepTheOrderOfTheChannels) {
  const auto layer = shuffle("eiw");
  torch::NoGradGuard no_grad;
  layer->named_parameters()["solver_hidden"].fill_(-1);  // every hidden unit is dead
  layer->named_parameters()["solver_out"].normal_();
  EXPECT_TRUE(torch::equal(layer->order(), torch::arange(8)));
  EXPECT_TRUE(torch::allclose(layer->weights(), torch::full({8}, 0.125)));
}

TEST(EiwShuffle, TheOrderFollowsEachChangeOfTheParametersInBothDirections) {
  const auto layer = shuffle("eiw", {2, 1, 1});
  const auto x = torch::randn({3, 2, 1, 1});
  prefer(*layer, {1, 0});
  EXPECT_TRUE(torch::equal(layer->forward(x).value, x.flip(1)));
  prefer(*layer, {0, 1});
  EXPECT_TRUE(torch::equal(layer->inverse(x).value, x));
  EXPECT_TRUE(torch::equal(layer->forward(x).value, x));
}

TEST(EiwShuffle, TheOrderFollowsThePenaltyInTraining) {
  torch::manual_seed(seed);
  const auto flow = build_flow(Json::parse(R"({"layers": [
      {"type": "image", "shape": [4, 2, 2]}, {"type": "eiw_shuffle", "shape": [4, 2, 2], "reduction": 1},
      {"type": "inverse", "layer": {"type": "image", "shape": [4, 2, 2]}}],
      "base": {"type": "normal", "features": 16}})"));
  MaximumLikelihood objective(flow);
  fit(objective, *in_memory({.x = torch::randn({64, 16}) + 1}), nullptr,
      {.batch_size = 64, .steps = 200, .learning_rate = 1e-2, .checkpoint_seconds = 0});
  std::shared_ptr<EiwShuffle> layer;
  for (const auto& module : flow->modules())
    if (auto found = std::dynamic_pointer_cast<EiwShuffle>(module)) layer = found;
  const auto ranked = layer->weights().argsort(/*stable=*/true, 0, /*descending=*/true);
  EXPECT_FALSE(torch::equal(ranked, torch::arange(4))) << "nothing was learned; the test shows nothing";
  EXPECT_TRUE(torch::equal(layer->order(), ranked));
  const auto x = torch::randn({3, 4, 2, 2});
  EXPECT_TRUE(torch::equal(layer->forward(x).value, x.index_select(1, ranked)));
}

TEST(EiwShuffle, TheLikelihoodGivesTheSolverNoGradientAndThePenaltyDoes) {
  const auto layer = shuffle("eiw");
  prefer(*layer, {1, 0, 3, 2, 5, 4, 7, 6});
  auto x = torch::randn({4, 8, 4, 6}).requires_grad_();
  const auto loss = layer->forward(x).value.square().sum();
  for (const auto& grad : torch::autograd::grad({loss}, layer->parameters(), {}, {}, false, true))
    EXPECT_FALSE(grad.defined());
  const Penalties penalties;
  layer->forward(x);
  auto inputs = layer->parameters();
  inputs.push_back(x);
  for (const auto& grad : torch::autograd::grad({penalties.sum()}, inputs)) {
    ASSERT_TRUE(grad.defined());
    EXPECT_GT(grad.abs().max().item<double>(), 0);
  }
}

TEST(EiwShuffle, ThePenaltyIsWhatItsFormulaSays) {
  torch::manual_seed(seed);
  const auto w = torch::randn({6}, torch::kFloat64).softmax(0), q = torch::randn({3, 6}, torch::kFloat64).softmax(1);
  double kl = 0, coded = 0;
  for (int64_t b = 0; b < 3; ++b)
    for (int64_t c = 0; c < 6; ++c) {
      const double wc = w[c].item<double>(), qc = q[b][c].item<double>();
      kl += wc * (std::log(wc) - std::log(qc)) / 3;
      coded += wc * (std::log(wc) - qc) / 3;
    }
  EXPECT_NEAR(eiw_regulariser(w.log(), q.log(), false).item<double>(), kl, 1e-12);
  EXPECT_NEAR(eiw_regulariser(w.log(), q.log(), true).item<double>(), coded, 1e-12);
  // For fixed q, the least value of the coded form is at w = softmax(mean q).
  const auto mean = q.mean(0);
  EXPECT_NEAR(eiw_regulariser(mean.log_softmax(0), q.log(), true).item<double>(), -mean.logsumexp(0).item<double>(),
              1e-12);
  EXPECT_NEAR(eiw_regulariser(mean.log(), mean.log().unsqueeze(0), false).item<double>(), 0, 1e-12);
}

TEST(EiwShuffle, MaximumLikelihoodAddsThePenaltyInTrainingOnly) {
  torch::manual_seed(seed);
  const auto flow = build_flow(Json::parse(R"({"layers": [
      {"type": "image", "shape": [2, 2, 2]}, {"type": "eiw_shuffle", "shape": [2, 2, 2]},
      {"type": "inverse", "layer": {"type": "image", "shape": [2, 2, 2]}}], "base": {"type": "normal", "features": 8}})"));
  const Batch batch{.x = torch::randn({7, 8})};
  MaximumLikelihood objective(flow, {.penalty = 0.5}), plain(flow, {.penalty = 0});
  const Penalties penalties;
  flow->log_prob(batch.x);
  const double penalty = 0.5 * std::log(2.0) * 8 * penalties.sum().item<double>();
  EXPECT_GT(std::abs(penalty), 1e-6);
  EXPECT_NEAR(objective.loss(batch).item<double>() - plain.loss(batch).item<double>(), penalty, 1e-5);
  objective.eval();
  EXPECT_EQ(objective.loss(batch).item<double>(), plain.loss(batch).item<double>());
}

TEST(EiwShuffle, ItsPenaltyIsRefusedWhereNoGraphIsKept) {
  const auto layer = shuffle("eiw");
  const Penalties penalties;
  torch::NoGradGuard no_grad;
  EXPECT_THROW(layer->forward(torch::randn({2, 8, 4, 6})), Error);
  layer->eval();
  EXPECT_NO_THROW(layer->forward(torch::randn({2, 8, 4, 6})));
}

TEST(EiwShuffle, NegentropyPutsTheLeastNormalChannelsFirstAndFreezesInEvaluation) {
  const auto layer = shuffle("negentropy", {4, 8, 8});
  auto x = torch::randn({64, 4, 8, 8});
  x.select(1, 2).copy_(torch::randn({64, 8, 8}).sign() + 0.1 * torch::randn({64, 8, 8}));
  x.select(1, 3).uniform_(-1, 1);
  layer->forward(x);
  EXPECT_EQ(layer->order()[0].item<int64_t>(), 2);
  EXPECT_EQ(layer->order()[1].item<int64_t>(), 3);
  layer->eval();
  const auto before = layer->order().clone();
  EXPECT_TRUE(torch::equal(layer->forward(x.flip(1)).value, x.flip(1).index_select(1, before)));
  EXPECT_TRUE(torch::equal(layer->order(), before));
}

TEST(EiwShuffle, OrderByNegentropyChangesForMoreThanTheMarginAndUntilItSettles) {
  torch::manual_seed(seed);
  const auto normal = torch::randn({64, 2, 8, 8}), rings = normal.sign() + 0.1 * torch::randn({64, 2, 8, 8});
  const auto image = [&](const Tensor& first, const Tensor& last) { return torch::cat({first, last}, 1); };
  EiwShuffle changing({.shape = {4, 8, 8}, .order = "negentropy"});
  const auto before = changing.order();
  changing.forward(image(normal, rings));
  EXPECT_NE(before[0].item<int64_t>(), changing.order()[0].item<int64_t>()) << "a graph may keep the earlier one";
  const auto first_after = [&](double margin, int64_t settle, int64_t normal_first) {
    EiwShuffle layer({.shape = {4, 8, 8}, .order = "negentropy", .decay = 0.5, .margin = margin, .settle = settle});
    for (int64_t batch = 0; batch < normal_first; ++batch) layer.forward(image(rings, normal));
    for (int64_t batch = 0; batch < 20; ++batch) layer.forward(image(normal, rings));
    return layer.order()[0].item<int64_t>();
  };
  EXPECT_EQ(first_after(0.01, 300, 1), 2);
  EXPECT_EQ(first_after(10, 300, 1), 0) << "nothing differs by 10 nats";
  EXPECT_EQ(first_after(0.01, 1, 1), 0) << "it has settled";
  EXPECT_EQ(first_after(0.01, 0, 0), 0) << "it never moves";
}

TEST(Negentropy, IsThatOfKnownDistributions) {
  torch::manual_seed(seed);
  const int64_t n = 20000;
  const auto normal = 3 * torch::randn({n, 1}, torch::kFloat64) + 7, uniform = torch::rand({n, 1}, torch::kFloat64),
             laplace = -torch::rand({n, 1}, torch::kFloat64).log() * torch::randn({n, 1}, torch::kFloat64).sign();
  const auto j = negentropy(torch::cat({normal, uniform, laplace}, 1));
  EXPECT_NEAR(j[0].item<double>(), 0, 0.02) << "seed " << seed;
  EXPECT_NEAR(j[1].item<double>(), 0.5 * std::log(2 * M_PI * M_E / 12), 0.03) << "seed " << seed;
  EXPECT_NEAR(j[2].item<double>(), 0.5 * std::log(2 * M_PI * M_E * 2) - 1 - std::log(2.0), 0.03) << "seed " << seed;
  EXPECT_TRUE(negentropy(torch::ones({50, 2})).isfinite().all().item<bool>());
}

}  // namespace
}  // namespace diffeo::testing
