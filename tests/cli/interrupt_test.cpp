// Runs that are stopped: a signal is answered with a checkpoint, SIGKILL never leaves an unreadable file, and --resume
// comes to the same end, bit for bit, as a run that was never stopped.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include "cli/program.h"
#include "diffeo/data/model_file.h"

namespace diffeo::testing {
namespace {

constexpr int steps = 8000;  // more than all the runs that are killed get done, on a fast machine too

std::string training(const std::string& model, double checkpoint_seconds) {
  return "train moons.h5 --flow nsf --layers 2 --width 8 --depth 1 --bins 4 --batch-size 64 --evaluate-every 800 "
         "--average 0.99 --seed 2 --threads 1 "
         "--steps " +
         std::to_string(steps) + " --checkpoint-seconds " + std::to_string(checkpoint_seconds) + " -o " + model;
}

void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

void expect_same(const NamedTensors& a, const NamedTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    EXPECT_TRUE(a[i].second.equal(b[i].second)) << a[i].first;
  }
}

/// All but times of day: parameters, optimiser, random state, and the losses on the way.
void expect_same_end(const ModelFile& a, const ModelFile& b) {
  EXPECT_EQ(a.spec, b.spec);
  expect_same(a.state, b.state);
  expect_same(a.training_state, b.training_state);
  ASSERT_EQ(a.history.size(), b.history.size());
  for (size_t i = 0; i < a.history.size(); ++i)
    for (const auto* key : {"step", "epoch", "loss", "valid_loss", "learning_rate"})
      EXPECT_EQ(a.history[i].at(key), b.history[i].at(key)) << key;
}

class Interrupt : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(folder.run("toy moons -n 1500 moons.h5").code, 0);
    const auto outcome = folder.run(training("undisturbed.h5", 0.05));
    ASSERT_EQ(outcome.code, 0) << ::testing::PrintToString(outcome);
    undisturbed = read_model(folder.path("undisturbed.h5"));
  }
  bool exists(const std::string& name) const { return std::filesystem::exists(folder.path(name)); }
  /// Waits until a run has written its first checkpoint.
  void wait_for_file(const std::string& name) const {
    for (int i = 0; i < 3000 && !exists(name); ++i) sleep_for(0.01);
    ASSERT_TRUE(exists(name)) << "no checkpoint within 30 s";
  }

  const Folder folder;
  ModelFile undisturbed;
};

TEST_F(Interrupt, SignalsLeaveAModelThatCanBeUsedAndResumed) {
  for (const int signal : {SIGINT, SIGTERM}) {
    SCOPED_TRACE(signal);
    const auto model = "signal-" + std::to_string(signal) + ".h5";
    const auto process = folder.start(training(model, 0.01));
    wait_for_file(model);
    kill(process, signal);
    EXPECT_EQ(wait_for(process), 130);
    const auto saved = read_model(folder.path(model));
    EXPECT_FALSE(saved.metadata.at("finished").get<bool>());
    EXPECT_EQ(folder.run("sample " + model + " -n 10 -o samples.h5").code, 0) << "an interrupted model is a model";
    // Not lost by mistake.
    const auto again = folder.run(training(model, 60));
    EXPECT_EQ(again.code, 2);
    EXPECT_NE(again.errors.find("--resume goes on"), std::string::npos) << again.errors;
    // Nor continued with other options or data.
    const auto other = folder.run(training(model, 60) + " --resume --batch-size 32");
    EXPECT_EQ(other.code, 2) << ::testing::PrintToString(other);
    const auto resumed = folder.run(training(model, 60) + " --resume");
    ASSERT_EQ(resumed.code, 0) << ::testing::PrintToString(resumed);
    EXPECT_NE(resumed.output.find("resumed   at step "), std::string::npos) << resumed.output;
    expect_same_end(read_model(folder.path(model)), undisturbed);
  }
}

TEST_F(Interrupt, KilledAtAnyMomentResumesToTheSameEnd) {
  const uint64_t seed = 20261130;
  SCOPED_TRACE(seed);
  constexpr int kills = 24;
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> soon(0.0, 0.3), at_once(0.0, 0.05);
  const auto model = folder.path("model.h5");
  const auto written = [&] {
    return exists("model.h5") ? std::filesystem::last_write_time(model) : std::filesystem::file_time_type();
  };
  for (int i = 0; i < kills; ++i) {
    const auto before = written();
    // Checkpoints after every step: many kills meet one half written.
    const auto process = folder.start(training("model.h5", 0.0001) + " --resume");
    if (i % 3 == 0) {
      sleep_for(soon(random));  // in start-up, in reading, in the first steps
    } else {
      for (int wait = 0; wait < 10000 && written() == before; ++wait) sleep_for(0.001);
      sleep_for(at_once(random));
    }
    kill(process, SIGKILL);
    ASSERT_EQ(wait_for(process), 128 + SIGKILL) << "run " << i << " ended before it was killed";
    if (exists("model.h5")) ASSERT_NO_THROW(read_model(model)) << "unreadable after kill " << i;
  }
  const auto saved = read_model(model);
  EXPECT_FALSE(saved.metadata.at("finished").get<bool>());
  const auto outcome = folder.run(training("model.h5", 60) + " --resume");
  ASSERT_EQ(outcome.code, 0) << ::testing::PrintToString(outcome);
  expect_same_end(read_model(model), undisturbed);
  EXPECT_EQ(folder.files(), (std::vector<std::string>{"model.h5", "moons.h5", "undisturbed.h5"}))
      << "something was left behind";
}

TEST_F(Interrupt, SamplingLeavesNothingHalfDone) {
  const auto process = folder.start("sample undisturbed.h5 -n 1e9 -o samples.h5");
  sleep_for(1.5);
  kill(process, SIGINT);
  EXPECT_EQ(wait_for(process), 130);
  EXPECT_EQ(folder.files(), (std::vector<std::string>{"moons.h5", "undisturbed.h5"}));
}

}  // namespace
}  // namespace diffeo::testing
