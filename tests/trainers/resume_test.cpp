// A run that was stopped and went on ends, bit for bit, where it would have ended anyway.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <random>

#include "diffeo/layers/base/random.h"
#include "diffeo/trainers/fit.h"
#include "diffeo/trainers/noisy_data.h"
#include "trainers/rows.h"

namespace diffeo::testing {
namespace {

constexpr uint64_t seed = 11;

class Resume : public ::testing::Test {
 protected:
  Resume() : threads_(at::get_num_threads()), trace_(__FILE__, __LINE__, c10::str("seed ", seed)) {
    at::set_num_threads(1);
  }
  ~Resume() override { at::set_num_threads(threads_); }

  /// Everything that has a state: ActNorm, both kinds of batch norm, dropout, noise.
  static ObjectivePtr objective(uint64_t initial, int64_t width = 8) {
    const SeedGuard guard(initial);
    const Json net = {{"type", "residual"}, {"width", width}, {"depth", 1}, {"dropout", 0.2}, {"batch_norm", true}};
    const Json coupling = {{"type", "coupling"}, {"features", 2}, {"net", net}};
    auto flow = build_flow(
        {{"layers",
          {{{"type", "actnorm"}, {"features", 2}}, coupling, {{"type", "batch_norm"}, {"features", 2}}, coupling}},
         {"base", {{"type", "normal"}, {"features", 2}}}});
    return std::make_shared<NoisyData>(std::make_shared<MaximumLikelihood>(flow), *flow,
                                       NoisyData::Options{.noise = 0.05, .dequantize = {1}});
  }

  static FitOptions options() {
    return {.batch_size = 25,
            .epochs = 6,
            .learning_rate = 3e-2,
            .schedule = "plateau",
            .warmup_steps = 3,
            .weight_decay = 1e-3,
            .clip_norm = 1,
            .average = 0.9,
            .evaluate_every = 3,
            .patience = 4,
            .checkpoint_seconds = 0,
            .seed = seed};
  }

  const Rows train{{moons(90, seed)}}, valid{{moons(60, seed + 1)}};  // epochs of 4 steps, the last of 15 rows

 private:
  int threads_;
  ::testing::ScopedTrace trace_;
};

Json without_seconds(Json history) {
  for (auto& item : history) item.erase("seconds");
  return history;
}

Json course(const TrainingState& state) {
  auto scalars = state.scalars;
  scalars.erase("seconds");
  scalars["history"] = without_seconds(scalars["history"]);
  return scalars;
}

/// A state as it comes back from a model file, its tensors in another order.
TrainingState through_a_file(const TrainingState& state) {
  const auto path = ::testing::TempDir() + c10::str("diffeo_resume_", getpid(), ".h5");
  ModelFile model;
  model.spec = Json::object();
  model.training = state.scalars;
  model.training_state = state.tensors;
  write_model(path, model);
  model = read_model(path);
  std::remove(path.c_str());
  TrainingState again{model.training, model.training_state};
  std::sort(again.tensors.begin(), again.tensors.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return again;
}

void expect_same_end(const FitReport& got, const FitReport& want) {
  EXPECT_EQ(got.ended, want.ended);
  EXPECT_EQ(got.steps, want.steps);
  EXPECT_EQ(got.epochs, want.epochs);
  EXPECT_EQ(got.best_valid_loss, want.best_valid_loss);
  EXPECT_EQ(got.train_loss, want.train_loss);
  EXPECT_EQ(without_seconds(got.history), without_seconds(want.history));
  EXPECT_EQ(course(got.state), course(want.state));
  EXPECT_TRUE(same_bits(got.state.tensors, want.state.tensors));
}

TEST_F(Resume, FromEveryCheckpointToTheSameEnd) {
  for (const auto* schedule : {"plateau", "cosine"}) {
    auto wishes = options();
    wishes.schedule = schedule;
    std::vector<TrainingState> checkpoints;
    FitHooks hooks;
    hooks.checkpoint = [&](const TrainingState& state, const Json&) { checkpoints.push_back(through_a_file(state)); };
    const auto whole = objective(1);
    const auto want = fit(*whole, train, &valid, wishes, hooks);
    ASSERT_EQ(want.steps, static_cast<int64_t>(checkpoints.size()));
    ASSERT_GE(want.steps, 12);
    if (wishes.schedule == "plateau") {
      EXPECT_GE(want.state.scalars["schedule"]["drops"], 1);
    }
    checkpoints.push_back(want.state);  // going on from the end is the end
    for (size_t i = 0; i < checkpoints.size(); ++i) {
      SCOPED_TRACE(c10::str(schedule, ", stopped after step ", i + 1));
      const auto part = objective(100 + i);  // other initial values: all must come from the state
      const auto got = fit(*part, train, &valid, wishes, {}, &checkpoints[i]);
      expect_same_end(got, want);
      EXPECT_TRUE(same_bits(named_state(*part), named_state(*whole)));
    }
  }
}

TEST_F(Resume, InterruptedAgainAndAgain) {
  auto wishes = options();
  wishes.checkpoint_seconds = 1e9;
  const auto whole = objective(1);
  const auto want = fit(*whole, train, &valid, wishes);
  std::mt19937 random(seed);
  for (int trial = 0; trial < 3; ++trial) {
    auto part = objective(1);
    std::optional<TrainingState> state;
    FitReport got;
    for (int session = 0;; ++session) {
      ASSERT_LT(session, 30);
      FitHooks hooks;
      int64_t left = std::uniform_int_distribution<int64_t>(1, 5)(random);
      hooks.stop = [&] { return --left == 0; };
      got = fit(*part, train, &valid, wishes, hooks, state ? &*state : nullptr);
      if (got.ended != "interrupted") break;
      state = through_a_file(got.state);
      part = objective(50 + session);
    }
    expect_same_end(got, want);
    EXPECT_TRUE(same_bits(named_state(*part), named_state(*whole)));
  }
}

TEST_F(Resume, MoreStepsThanPlannedWhereTheScheduleAllowsIt) {
  for (const auto* schedule : {"constant", "plateau"}) {
    auto wishes = options();
    wishes.schedule = schedule;
    wishes.patience = 0;
    wishes.epochs = 0;
    wishes.steps = 10;  // not a multiple of evaluate_every: the short run evaluates once more than the long one
    const auto part = objective(1), rest = objective(2), whole = objective(1);
    const auto state = through_a_file(fit(*part, train, &valid, wishes).state);
    wishes.steps = 17;
    const auto want = fit(*whole, train, &valid, wishes);
    expect_same_end(fit(*rest, train, &valid, wishes, {}, &state), want);
    EXPECT_TRUE(same_bits(named_state(*rest), named_state(*whole)));
  }
}

TEST_F(Resume, InputsOfLayersAloneLeadToTheSameEnd) {
  // ActNorm, batch norm, dropout: computed twice, changed and drawn once. The run may go on in another mode.
  std::vector<TrainingState> checkpoints;
  FitHooks hooks;
  hooks.checkpoint = [&](const TrainingState& state, const Json&) { checkpoints.push_back(state); };
  auto wishes = options();
  const auto whole = objective(1);
  const auto want = fit(*whole, train, &valid, wishes, hooks);
  for (const auto* memory : {"checkpoint", "constant"}) {  // these layers' inputs are kept in both
    wishes.memory = memory;
    const auto again = objective(1);
    const auto got = fit(*again, train, &valid, wishes);
    EXPECT_EQ(got.ended, want.ended);
    EXPECT_TRUE(same_bits(named_state(*again), named_state(*whole))) << memory;
    const auto rest = objective(2);
    fit(*rest, train, &valid, wishes, {}, &checkpoints[4]);
    EXPECT_TRUE(same_bits(named_state(*rest), named_state(*whole))) << memory;
  }
}

TEST_F(Resume, WithInvertedLayersToTheSameEnd) {
  auto wishes = options();
  wishes.memory = "constant";
  const auto make = [](uint64_t seed) { return std::make_shared<MaximumLikelihood>(small_flow(2, seed)); };
  std::vector<TrainingState> checkpoints;
  FitHooks hooks;
  hooks.checkpoint = [&](const TrainingState& state, const Json&) { checkpoints.push_back(through_a_file(state)); };
  const auto whole = make(1);
  const auto want = fit(*whole, train, &valid, wishes, hooks);
  const auto rest = make(2);
  expect_same_end(fit(*rest, train, &valid, wishes, {}, &checkpoints[6]), want);
  EXPECT_TRUE(same_bits(named_state(*rest), named_state(*whole)));
}

TEST_F(Resume, AfterABadStepTheBuffersAreAsBefore) {
  // The state of a run whose data are NaN from some row on is that of the run before.
  auto wishes = options();
  wishes.epochs = 1;
  wishes.evaluate_every = 0;
  const Rows broken({torch::full({90, 2}, std::numeric_limits<float>::quiet_NaN())});
  const auto part = objective(1);
  FitHooks hooks;
  hooks.stop = [] { return true; };
  const auto state = fit(*part, train, &valid, wishes, hooks).state;
  const auto after = fit(*part, broken, &valid, wishes, {}, &state);
  EXPECT_EQ(after.skipped_steps, 3);
  const auto current = [](const TrainingState& state) {
    NamedTensors tensors;
    for (const auto& item : state.tensors)
      if (!item.first.starts_with("random/") && !item.first.starts_with("best/")) tensors.push_back(item);
    return tensors;
  };
  EXPECT_TRUE(same_bits(current(after.state), current(state)));
}

TEST_F(Resume, AStateThatDoesNotFitIsRefused) {
  const auto part = objective(1);
  FitHooks hooks;
  hooks.stop = [] { return true; };
  const auto state = fit(*part, train, &valid, options(), hooks).state;
  const auto say = [&](const TrainingState& state, const FitOptions& wishes, const Dataset& data, int64_t width = 8) {
    const auto other = objective(3, width);
    const auto before = other->parameters()[0].detach().clone();
    std::string message = "no error";
    try {
      fit(*other, data, &valid, wishes, {}, &state);
    } catch (const Error& error) {
      message = error.what();
      EXPECT_TRUE(other->parameters()[0].equal(before));
    }
    return message;
  };
  const auto with = [](auto member, auto value) {
    auto changed = options();
    changed.*member = value;
    return changed;
  };
  EXPECT_EQ(say(state, with(&FitOptions::batch_size, 30), train),
            "fit: the run to resume had batch_size 25, not 30; resume with the same options or begin a new run");
  EXPECT_NE(say(state, with(&FitOptions::seed, 12u), train).find("had seed 11, not 12"), std::string::npos);
  EXPECT_NE(say(state, with(&FitOptions::average, 0), train).find("had average 0.9, not 0.0"), std::string::npos);
  EXPECT_NE(say(state, with(&FitOptions::patience, 9), train).find("had patience 4, not 9"), std::string::npos);
  EXPECT_NE(say(state, options(), Rows({moons(91, seed)})).find("had 90 training rows, not 91"), std::string::npos);
  EXPECT_NE(say(state, options(), train, 9).find("is Float [8, 1], expected Float [9, 1]; it is of another model"),
            std::string::npos);
  EXPECT_EQ(say({}, options(), train), "fit: there is no state of a training run to resume from");

  auto changed = state;
  changed.scalars["format"] = 99;
  EXPECT_EQ(say(changed, options(), train), "fit: the training state has format 99, this program knows format 1");
  changed = state;
  changed.scalars["step"] = "three";
  EXPECT_EQ(say(changed, options(), train), "training state/step: expected an integer, got \"three\"");
  changed = state;
  changed.tensors.erase(changed.tensors.begin());
  EXPECT_NE(say(changed, options(), train).find("the training state has no 'current/objective.flow."),
            std::string::npos);
  changed = state;
  std::erase_if(changed.tensors, [](const auto& item) { return item.first == "optimizer/float32/second_moment"; });
  EXPECT_EQ(say(changed, options(), train), "optimizer: the state has no 'float32/second_moment'");

  auto cosine = options();
  cosine.schedule = "cosine";
  const auto planned = fit(*objective(1), train, &valid, cosine, hooks).state;
  cosine.epochs = 7;
  EXPECT_NE(say(planned, cosine, train).find("was planned for 24 steps, not 28, and a cosine schedule cannot"),
            std::string::npos);
}

}  // namespace
}  // namespace diffeo::testing
