// The training loop: what it must reach, and what must never stop or spoil it.
#include "diffeo/trainers/fit.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <numbers>

#include "diffeo/layers/base/random.h"
#include "trainers/rows.h"

namespace diffeo::testing {
namespace {

constexpr uint64_t seed = 7;

class Fit : public ::testing::Test {
 protected:
  // The tensors are tiny: threads would only wait for one another.
  Fit() : threads_(at::get_num_threads()), trace_(__FILE__, __LINE__, c10::str("seed ", seed)) {
    at::set_num_threads(1);
  }
  ~Fit() override { at::set_num_threads(threads_); }

 private:
  int threads_;
  ::testing::ScopedTrace trace_;
};

/// Maximum likelihood that is not a number in chosen calls (from 0, the look at the first rows) in training.
class Troubled : public MaximumLikelihood {
 public:
  Troubled(FlowPtr flow, std::function<bool(int64_t)> bad) : MaximumLikelihood(std::move(flow)), bad_(std::move(bad)) {}
  Tensor loss(const Batch& batch) override {
    const auto loss = MaximumLikelihood::loss(batch);
    if (!is_training()) return loss;
    return bad_(calls_++) ? loss * std::numeric_limits<double>::quiet_NaN() : loss;
  }

 private:
  std::function<bool(int64_t)> bad_;
  int64_t calls_ = 0;
};

/// The mean negative log likelihood of points under the normal distribution fitted to them, nats.
double gaussian_loss(const Tensor& x) {
  const auto covariance = torch::cov(x.t());
  return 0.5 * std::log((2 * std::numbers::pi * std::numbers::e * covariance).det().item<double>());
}

double loss_on(Objective& objective, const Tensor& x) {
  torch::NoGradGuard no_grad;
  return objective.loss({x}).item<double>();
}

NamedTensors values_of(const torch::nn::Module& module) {
  NamedTensors values;
  for (const auto& [name, tensor] : named_state(module)) values.emplace_back(name, tensor.detach().clone());
  return values;
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

TEST_F(Fit, TellsTheFlowWhatToKeepWhileItRuns) {
  const Rows train({moons(200, seed)});
  const auto flow = small_flow(2, seed);
  MaximumLikelihood objective(flow);
  FitHooks hooks;
  Memory during = Memory::normal;
  hooks.stop = [&] {
    during = flow->memory();
    return true;
  };
  fit(objective, train, nullptr, {.steps = 1, .memory = "constant"}, hooks);
  EXPECT_EQ(during, Memory::constant);
  EXPECT_EQ(flow->memory(), Memory::normal);
  EXPECT_EQ(message_of([&] { fit(objective, train, nullptr, {.steps = 1, .memory = "none"}); }).substr(0, 6), "memory");
}

TEST_F(Fit, LearnsMoonsFarBetterThanANormalDistribution) {
  const Rows train({moons(4000, seed)}), valid({moons(2000, seed + 1)});
  MaximumLikelihood objective(small_flow(2, seed, {{"width", 32}}, 4));
  const auto report =
      fit(objective, train, &valid, {.batch_size = 250, .steps = 600, .learning_rate = 5e-3, .seed = seed});
  EXPECT_EQ(report.ended, "steps");
  EXPECT_EQ(report.steps, 600);
  EXPECT_EQ(report.history.size(), 38u);  // 37 whole epochs of 16 steps, and the end
  const double bound = gaussian_loss(moons(2000, seed + 1));
  EXPECT_LT(report.best_valid_loss, bound - 0.8) << "a normal distribution has " << bound;
  EXPECT_FALSE(objective.is_training());
  EXPECT_NEAR(loss_on(objective, moons(2000, seed + 1)), report.best_valid_loss, 1e-4);
}

TEST_F(Fit, EveryOptimizerAndScheduleLearns) {
  const Rows train({moons(600, seed)}), valid({moons(600, seed + 1)});
  for (const auto* optimizer : {"adam", "adamw", "sgd"})
    for (const auto* schedule : {"constant", "cosine", "plateau"}) {
      MaximumLikelihood objective(small_flow(2, seed));
      const double before = loss_on(objective, moons(600, seed + 1));
      const auto report = fit(objective, train, &valid,
                              {.batch_size = 100,
                               .epochs = 5,
                               .optimizer = optimizer,
                               .learning_rate = 1e-2,
                               .schedule = schedule,
                               .warmup_steps = 5,
                               .average = 0.9,
                               .seed = seed});
      EXPECT_EQ(report.ended, "epochs");
      EXPECT_EQ(report.steps, 30);
      EXPECT_EQ(report.epochs, 5);
      EXPECT_LT(report.best_valid_loss, before - 0.1) << optimizer << " " << schedule;
    }
}

TEST_F(Fit, IsRepeatableBitForBitAndLeavesTheCallersRandomNumbersAlone) {
  const Rows train({moons(500, seed)}), valid({moons(200, seed + 1)});
  const auto trained = [&](uint64_t fit_seed) {
    MaximumLikelihood objective(small_flow(2, seed, {{"width", 8}, {"dropout", 0.3}}));
    fit(objective, train, &valid, {.batch_size = 64, .steps = 20, .seed = fit_seed});
    return values_of(objective);
  };
  const SeedGuard guard(1);
  const auto expected = torch::rand({4});
  const SeedGuard again(1);
  const auto first = trained(seed);
  EXPECT_TRUE(torch::rand({4}).equal(expected));
  EXPECT_TRUE(same_bits(trained(seed), first));
  EXPECT_FALSE(same_bits(trained(seed + 1), first));
}

TEST_F(Fit, StepsThatAreNotFiniteChangeNothing) {
  const Rows train({moons(400, seed)});
  const FitOptions options{.batch_size = 100, .steps = 12, .schedule = "constant", .seed = seed};
  // All but the first two steps are bad: the end is that of two steps.
  Troubled bad(small_flow(2, seed), [](int64_t call) { return call > 2; });
  const auto report = fit(bad, train, nullptr, options);
  EXPECT_EQ(report.ended, "not finite");
  EXPECT_EQ(report.steps, 12);
  EXPECT_EQ(report.skipped_steps, 10);
  EXPECT_NE(report.message.find("not finite in 10 steps in a row, the last of them step 12"), std::string::npos);
  EXPECT_TRUE(std::isfinite(report.train_loss));
  MaximumLikelihood good(small_flow(2, seed));
  auto two = options;
  two.steps = 2;
  EXPECT_EQ(fit(good, train, nullptr, two).message, "");
  EXPECT_TRUE(same_bits(values_of(bad), values_of(good)));
}

TEST_F(Fit, SomeStepsThatAreNotFiniteAreCountedAndTheRunGoesOn) {
  const Rows train({moons(400, seed)}), valid({moons(400, seed + 1)});
  Troubled objective(small_flow(2, seed), [](int64_t call) { return call % 3 == 1; });
  const auto report = fit(objective, train, &valid,
                          {.batch_size = 100, .steps = 60, .learning_rate = 1e-2, .max_bad_steps = 2, .seed = seed});
  EXPECT_EQ(report.ended, "steps");
  EXPECT_EQ(report.skipped_steps, 20);
  EXPECT_LT(report.best_valid_loss, gaussian_loss(moons(400, seed + 1)) - 0.2);
}

TEST_F(Fit, GivingUpRestoresTheBestState) {
  const Rows train({moons(400, seed)}), valid({moons(400, seed + 1)});
  Troubled objective(small_flow(2, seed), [](int64_t call) { return call > 22; });
  const auto report =
      fit(objective, train, &valid, {.batch_size = 100, .steps = 1000, .learning_rate = 1e-2, .seed = seed});
  EXPECT_EQ(report.ended, "not finite");
  EXPECT_EQ(report.steps, 32);
  EXPECT_NE(report.message.find("the best state so far was kept"), std::string::npos);
  EXPECT_NEAR(loss_on(objective, moons(400, seed + 1)), report.best_valid_loss, 1e-5);
}

TEST_F(Fit, HugeValuesDoNotSpoilTheModel) {
  SeedGuard guard(seed);
  const Rows train({1000 * torch::randn({256, 3})});
  MaximumLikelihood objective(small_flow(3, seed));
  const auto report =
      fit(objective, train, nullptr, {.batch_size = 32, .steps = 40, .learning_rate = 1e-2, .seed = seed});
  for (const auto& [name, tensor] : named_state(objective)) EXPECT_TRUE(tensor.isfinite().all().item<bool>()) << name;
  EXPECT_TRUE(std::isfinite(report.train_loss));
}

TEST_F(Fit, PatienceEndsTheRunWithTheBestState) {
  // Forty rows are learnt by heart: the validation loss goes down, then up.
  const Rows train({moons(40, seed)}), valid({moons(1000, seed + 1)});
  MaximumLikelihood objective(small_flow(2, seed, {{"width", 32}}));
  std::vector<double> seen;
  FitHooks hooks;
  hooks.progress = [&](const Progress& progress) {
    if (progress.evaluated) seen.push_back(progress.valid_loss);
  };
  const auto report = fit(objective, train, &valid,
                          {.batch_size = 40,
                           .steps = 5000,
                           .learning_rate = 2e-2,
                           .schedule = "constant",
                           .evaluate_every = 5,
                           .patience = 4,
                           .seed = seed},
                          hooks);
  EXPECT_EQ(report.ended, "patience");
  EXPECT_LT(report.steps, 1000);
  ASSERT_GE(seen.size(), 6u);
  EXPECT_EQ(report.history.size(), seen.size());
  const auto best = std::min_element(seen.begin(), seen.end());
  EXPECT_EQ(seen.end() - best, 5);  // four evaluations without a new best
  EXPECT_EQ(*best, report.best_valid_loss);
  EXPECT_NEAR(loss_on(objective, moons(1000, seed + 1)), *best, 1e-5);
  EXPECT_GT(seen.back(), *best);
}

TEST_F(Fit, WeightsActLikeRepeatedRows) {
  const auto x = moons(60, seed, torch::kFloat64), junk = torch::full({5, 2}, 1e6, torch::kFloat64);
  const auto weight = torch::tensor({1.0, 2.0, 3.0}, torch::kFloat64).repeat({20});
  const auto repeated = x.repeat_interleave(weight.to(torch::kInt64), 0);
  const auto weighted = torch::cat({x, junk}), weights = torch::cat({weight, torch::zeros({5}, torch::kFloat64)});
  const auto trained = [](const Batch& rows) {
    const Rows data(rows);
    MaximumLikelihood objective(small_flow(2, seed));
    objective.to(torch::kFloat64);
    fit(objective, data, &data, {.batch_size = 200, .steps = 20, .learning_rate = 1e-2, .seed = seed});
    torch::NoGradGuard no_grad;
    return std::pair(values_of(objective), objective.loss(rows).item<double>());
  };
  const auto [once, loss_once] = trained({.x = weighted, .weight = weights});
  const auto [often, loss_often] = trained({.x = repeated});
  EXPECT_NEAR(loss_once, loss_often, 1e-9);
  for (size_t i = 0; i < once.size(); ++i)
    EXPECT_TRUE(torch::allclose(once[i].second, often[i].second, 1e-7, 1e-8)) << once[i].first;
}

TEST_F(Fit, BatchesOfOneRowAndALastBatchOfOneRow) {
  const Json normed = {{"type", "residual"}, {"width", 8}, {"depth", 1}, {"batch_norm", true}};
  for (const auto& net : {Json{{"width", 8}}, normed})
    for (int64_t batch_size : {1, 4}) {  // 13 = 3 * 4 + 1 rows
      SCOPED_TRACE(c10::str(net.dump(), " in batches of ", batch_size));
      const Rows train({moons(13, seed)});
      MaximumLikelihood objective(small_flow(2, seed, net));
      const auto report = fit(objective, train, &train, {.batch_size = batch_size, .epochs = 3, .seed = seed});
      EXPECT_EQ(report.steps, batch_size == 1 ? 39 : 12);
      EXPECT_EQ(report.skipped_steps, 0);
      EXPECT_TRUE(std::isfinite(report.best_valid_loss));
    }
  const Rows one({moons(1, seed)});
  MaximumLikelihood objective(small_flow(2, seed));
  EXPECT_EQ(fit(objective, one, nullptr, {.steps = 3}).skipped_steps, 0);
}

TEST_F(Fit, SecondsEndTheRun) {
  const Rows train({moons(100, seed)});
  MaximumLikelihood objective(small_flow(2, seed));
  std::vector<double> rates;
  FitHooks hooks;
  hooks.progress = [&](const Progress& progress) {
    rates.push_back(progress.learning_rate);
    EXPECT_LE(progress.seconds_left, 0.3);
    EXPECT_EQ(progress.total_steps, 0);
  };
  const auto report = fit(objective, train, nullptr, {.batch_size = 50, .seconds = 0.3}, hooks);
  EXPECT_EQ(report.ended, "seconds");
  EXPECT_GE(report.seconds, 0.3);
  EXPECT_GT(report.steps, 2);
  EXPECT_TRUE(std::is_sorted(rates.rbegin(), rates.rend()));  // the cosine of the time
}

TEST_F(Fit, TrainsWhereTheCallerHasGradientsDisabled) {
  torch::NoGradGuard no_grad;
  const Rows train({moons(100, seed)});
  MaximumLikelihood objective(small_flow(2, seed));
  EXPECT_EQ(fit(objective, train, nullptr, {.batch_size = 50, .steps = 2}).skipped_steps, 0);
  EXPECT_FALSE(at::GradMode::is_enabled());
}

TEST_F(Fit, TellsTheLearningRateOfEachStep) {
  const Rows train({moons(100, seed)});
  MaximumLikelihood objective(small_flow(2, seed));
  std::vector<double> rates;
  FitHooks hooks;
  hooks.progress = [&](const Progress& progress) { rates.push_back(progress.learning_rate); };
  const auto report = fit(objective, train, nullptr,
                          {.batch_size = 50, .steps = 4, .learning_rate = 1, .warmup_steps = 2, .seed = seed}, hooks);
  EXPECT_EQ(rates, (std::vector<double>{0.5, 1, 1, 0.5}));
  EXPECT_EQ(report.history.back()["learning_rate"], 0.5);
}

TEST_F(Fit, StopAndHooks) {
  const Rows train({moons(100, seed)}), valid({moons(50, seed)});
  MaximumLikelihood objective(small_flow(2, seed));
  int64_t asked = 0, checkpoints = 0, last_step = 0;
  FitHooks hooks;
  hooks.stop = [&] { return ++asked == 7; };
  hooks.checkpoint = [&](const TrainingState& state, const Json& history) {
    ++checkpoints;
    EXPECT_EQ(state.scalars.at("step"), last_step);
    EXPECT_EQ(history.size(), static_cast<size_t>(last_step / 2));
  };
  hooks.progress = [&](const Progress& progress) {
    EXPECT_EQ(progress.step, last_step + 1);
    EXPECT_EQ(progress.epoch, progress.step / 2);
    EXPECT_EQ(progress.total_steps, 100);
    EXPECT_EQ(progress.evaluated, progress.step % 2 == 0);
    EXPECT_EQ(std::isnan(progress.best_valid_loss), progress.step < 2);
    EXPECT_TRUE(std::isfinite(progress.loss));
    last_step = progress.step;
  };
  const auto report = fit(objective, train, &valid, {.batch_size = 50, .epochs = 50, .seed = seed}, hooks);
  EXPECT_EQ(report.ended, "interrupted");
  EXPECT_EQ(report.steps, 7);
  EXPECT_EQ(checkpoints, 1);
}

TEST_F(Fit, TheAverageIsWhatIsValidatedAndKept) {
  const auto x = moons(300, seed);
  const Rows train({x});
  MaximumLikelihood objective(small_flow(2, seed)), plain(small_flow(2, seed));
  const FitOptions options{.batch_size = 60, .steps = 30, .learning_rate = 2e-2, .average = 0.95, .seed = seed};
  const auto report = fit(objective, train, &train, options);
  EXPECT_NEAR(loss_on(objective, x), report.best_valid_loss, 1e-5);
  // The steps themselves do not know of the average.
  auto without = options;
  without.average = 0;
  const auto other = fit(plain, train, nullptr, without);
  EXPECT_EQ(other.train_loss, report.train_loss);
  EXPECT_FALSE(same_bits(values_of(objective), values_of(plain)));
}

TEST_F(Fit, MemoryIsFlatOverTenThousandSteps) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer keeps freed memory";
#endif
  const auto resident = [] {
    std::ifstream statm("/proc/self/statm");
    int64_t pages = 0, resident_pages = 0;
    statm >> pages >> resident_pages;
    return static_cast<double>(resident_pages) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
  };
  SeedGuard guard(seed);
  const Rows train({torch::randn({64, 2})});
  const auto flow =
      build_flow({{"layers", {{{"type", "actnorm"}, {"features", 2}}, {{"type", "batch_norm"}, {"features", 2}}}},
                  {"base", {{"type", "normal"}, {"features", 2}}}});
  MaximumLikelihood objective(flow);
  double after_a_tenth = 0;
  FitHooks hooks;
  hooks.progress = [&](const Progress& progress) {
    if (progress.step == 1000) after_a_tenth = resident();
  };
  const auto report =
      fit(objective, train, nullptr,
          {.batch_size = 32, .steps = 10000, .average = 0.9, .evaluate_every = 1000, .seed = seed}, hooks);
  EXPECT_EQ(report.steps, 10000);
  EXPECT_LT(resident(), after_a_tenth + 4) << "MiB; " << after_a_tenth << " after 1 000 steps";
}

TEST_F(Fit, WrongOptionsAndDataAreRefused) {
  const Rows train({moons(20, seed)}), empty({torch::zeros({0, 2})}), wide({torch::zeros({5, 3})});
  MaximumLikelihood objective(small_flow(2, seed));
  const auto say = [&](const FitOptions& options, const Dataset& data, const Dataset* valid = nullptr) {
    return message_of([&] { fit(objective, data, valid, options); });
  };
  const auto before = values_of(objective);
  EXPECT_EQ(say({}, train), "fit: nothing ends the run; set epochs, steps or seconds");
  EXPECT_EQ(say({.batch_size = 0, .steps = 1}, train), "batch_size: must be at least 1, got 0");
  EXPECT_EQ(say({.steps = -1}, train), "steps: must be at least 0, got -1");
  EXPECT_EQ(say({.seconds = std::nan("")}, train), "seconds: must be at least 0, got nan");
  EXPECT_EQ(say({.steps = 1, .patience = 3}, train), "patience: needs validation rows; give some or set it to 0");
  EXPECT_EQ(say({.steps = 1, .learning_rate = -1}, train), "learning_rate: must be above 0 and finite, got -1");
  EXPECT_EQ(say({.steps = 1, .clip_norm = -1}, train), "clip_norm: must be a finite number of at least 0, got -1");
  EXPECT_NE(say({.steps = 1, .optimizer = "adm"}, train).find("did you mean 'adam'"), std::string::npos);
  EXPECT_NE(say({.steps = 1, .schedule = "cosin"}, train).find("did you mean 'cosine'"), std::string::npos);
  EXPECT_EQ(say({.steps = 1}, empty), "fit: the training data have no rows");
  EXPECT_NE(say({.steps = 1}, wide).find("(*batch, 2), got [5, 3]"), std::string::npos);
  EXPECT_TRUE(same_bits(values_of(objective), before));
}

}  // namespace
}  // namespace diffeo::testing
