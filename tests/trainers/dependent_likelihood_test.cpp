#include "diffeo/trainers/dependent_likelihood.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "data/scratch.h"
#include "diffeo/data/whole_groups.h"
#include "diffeo/layers/base/random.h"
#include "diffeo/trainers/fit.h"
#include "trainers/rows.h"

namespace diffeo::testing {
namespace {

constexpr uint64_t seed = 31;

/// Forty rows in groups of 1 to 4.
Tensor groups() { return torch::arange(16).repeat_interleave(torch::tensor({1, 2, 3, 4}, torch::kInt64).repeat({4})); }

Batch labelled(const Tensor& label) {
  return {.x = moons(40, seed, torch::kFloat64), .context = {}, .weight = {}, .label = label};
}

FlowPtr flow_of_moons() {
  auto flow = small_flow(2, seed);
  flow->to(torch::kFloat64);
  return flow;
}

TEST(DependentLikelihood, AtStrengthZeroIsMaximumLikelihood) {
  const auto flow = flow_of_moons();
  const auto batch = labelled(torch::arange(40));
  MaximumLikelihood plain(flow);
  DependentLikelihood dependent(flow, {.strength = 0, .learn = "no"}, std::make_shared<GroupedRows>(groups()));
  EXPECT_NEAR(dependent.loss(batch).item<double>(), plain.loss(batch).item<double>(), 1e-12);
  DependentLikelihood whole(flow, {.strength = 0, .learn = "no"});
  EXPECT_NEAR(whole.loss(labelled(groups())).item<double>(), plain.loss(batch).item<double>(), 1e-12);
}

TEST(DependentLikelihood, EvaluatesTheMarginalFlow) {
  const auto flow = flow_of_moons();
  DependentLikelihood dependent(flow, {.strength = 0.8, .learn = "no"}, std::make_shared<GroupedRows>(groups()));
  dependent.eval();
  const auto x = moons(30, 3, torch::kFloat64);  // as many rows as there are, without labels
  EXPECT_NEAR(dependent.loss({x}).item<double>(), -flow->log_prob(x).mean().item<double>(), 1e-12);
}

TEST(DependentLikelihood, WholeGroupsInBatchesSumToAllRows) {
  const auto flow = flow_of_moons();
  DependentLikelihood all(flow, {.strength = 0.7, .learn = "no"}, std::make_shared<GroupedRows>(groups()));
  DependentLikelihood whole(flow, {.strength = 0.7, .learn = "no"});
  const double want = all.loss(labelled(torch::arange(40))).item<double>() * 40;
  const auto data = in_whole_groups(labelled(groups()));
  for (int64_t epoch : {0, 1}) {
    double sum = 0;
    int64_t rows = 0, batches = 0;
    const auto stream = data->shuffled(12, seed, epoch);
    for (Batch batch; stream->next(batch); ++batches) {
      sum += whole.loss(batch).item<double>() * static_cast<double>(batch.x.size(0));
      rows += batch.x.size(0);
    }
    EXPECT_EQ(rows, 40);
    EXPECT_EQ(batches, 4);
    EXPECT_NEAR(sum, want, 1e-9);
  }
}

TEST(DependentLikelihood, LearnsTheStrengthJointlyAndInTurns) {
  const SeedGuard guard(seed);
  const auto group = torch::arange(200).repeat_interleave(4);
  const auto x = 3 + 2 * (std::sqrt(0.6) * torch::randn({200, 2}).index_select(0, group) +
                          std::sqrt(0.4) * torch::randn({800, 2}));
  const Batch everything{.x = x, .context = {}, .weight = {}, .label = torch::arange(800)};
  for (const std::string learn : {"joint", "turns"}) {
    const auto flow =
        build_flow({{"layers", {{{"type", "elementwise"}, {"features", 2}, {"map", {{"type", "affine"}}}}}},
                    {"base", {{"type", "normal"}, {"features", 2}}}});
    DependentLikelihood objective(flow, {.strength = 0.2, .learn = learn, .turn_steps = 10},
                                  std::make_shared<GroupedRows>(group), everything);
    EXPECT_NEAR(objective.strength(), 0.2, 1e-5);
    fit(objective, *in_memory(everything), nullptr,
        {.batch_size = 800, .steps = 400, .learning_rate = 0.03, .seed = 1});
    EXPECT_NEAR(objective.strength(), 0.6, 0.08) << learn;
  }
}

TEST(DependentLikelihood, ResumesToTheSameBits) {
  const auto group = groups();
  const auto x = labelled(torch::arange(40));
  for (const std::string learn : {"joint", "turns"}) {
    const auto run = [&](int64_t stop) {
      const SeedGuard guard(seed);
      DependentLikelihood objective(flow_of_moons(), {.learn = learn, .turn_steps = 3},
                                    std::make_shared<GroupedRows>(group), x);
      FitOptions options{.batch_size = 16, .steps = 12, .seed = 5};
      FitHooks hooks;
      int64_t done = 0;
      hooks.stop = [&] { return ++done == stop; };
      auto report = fit(objective, *in_memory(x), nullptr, options, hooks);
      if (stop < 12) {
        DependentLikelihood again(flow_of_moons(), {.learn = learn, .turn_steps = 3},
                                  std::make_shared<GroupedRows>(group), x);
        report = fit(again, *in_memory(x), nullptr, options, {}, &report.state);
        return named_state(again);
      }
      return named_state(objective);
    };
    EXPECT_TRUE(same_bits(run(5), run(100))) << learn;
  }
}

TEST(DependentLikelihood, SaysWhatIsWrong) {
  const auto flow = flow_of_moons();
  EXPECT_ERROR(DependentLikelihood(flow, {.strength = -0.1}), "strength: must be between 0 and 0.99, got -0.1");
  EXPECT_ERROR(DependentLikelihood(flow, {.strength = 1}), "strength: must be between 0 and 0.99");
  EXPECT_ERROR(DependentLikelihood(flow, {.learn = "alone"}), "learn");
  EXPECT_ERROR(DependentLikelihood(flow, {.turn_steps = 0}), "turn_steps");
  const auto other = build_flow({{"layers", {{{"type", "actnorm"}, {"features", 2}}}},
                                 {"base", {{"type", "normal"}, {"features", 2}, {"trainable", true}}}});
  EXPECT_ERROR(DependentLikelihood(other, {}), "needs a flow on the standard normal base");
  DependentLikelihood objective(flow, {});
  EXPECT_ERROR(objective.loss(labelled({})), "each row needs one label");
  auto weighted = labelled(groups());
  weighted.weight = torch::ones({40}, torch::kFloat64);
  EXPECT_ERROR(objective.loss(weighted), "have no weights");
  EXPECT_ERROR(in_whole_groups(labelled({})), "needs the number of its group");
  EXPECT_ERROR(in_whole_groups(labelled(torch::zeros({40}, torch::kInt64)))->shuffled(10, 1, 0),
               "1 groups do not fill 4 batches of 10 rows");
}

}  // namespace
}  // namespace diffeo::testing
