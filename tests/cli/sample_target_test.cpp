// diffeo sample-target: what it writes and prints, and what it refuses.
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "cli/program.h"
#include "diffeo/data/table.h"
#include "diffeo/samplers/importance.h"

namespace diffeo::testing {
namespace {

Tensor read(const Folder& folder, const std::string& file, const std::string& object) {
  return read_table({folder.path(file), object, {}}, torch::kFloat64).values;
}

void expect_fine(const Outcome& outcome, const std::vector<std::string>& words) {
  EXPECT_EQ(outcome.code, 0) << ::testing::PrintToString(outcome);
  for (const auto& word : words)
    EXPECT_NE(outcome.output.find(word), std::string::npos) << "'" << word << "' is not in: " << outcome.output;
}

double printed_log_z(const Outcome& outcome) {
  std::smatch found;
  EXPECT_TRUE(std::regex_search(outcome.output, found, std::regex("log Z +([0-9.e+-]+)"))) << outcome.output;
  return found.empty() ? NAN : std::stod(found[1]);
}

TEST(SampleTarget, AnnealsToTheDoubleWell) {
  const Folder folder;
  const auto outcome = folder.run("sample-target double-well -n 4000 --divide 0,0 --resample -o samples.h5 --seed 3");
  expect_fine(outcome, {"double_well, 2 features", "hmc", "(exactly 10.2935)", "effective", "F below - F above",
                        "samples.h5:/x  4 000 samples x 2 columns, /log_weight, /resampled"});
  EXPECT_NEAR(printed_log_z(outcome), 10.2935, 0.15) << "seed 3";
  const auto x = read(folder, "samples.h5", "/x"), log_weight = read(folder, "samples.h5", "/log_weight").squeeze(-1);
  EXPECT_EQ(x.size(0), 4000);
  EXPECT_NEAR(log_mean_weight(log_weight).value, printed_log_z(outcome), 1e-4);
  EXPECT_NEAR(static_cast<double>(read(folder, "samples.h5", "/resampled").size(0)),
              4000 * effective_sample_size(log_weight), 1);
  // The same seed gives the same samples.
  folder.run("sample-target double-well -n 4000 --divide 0,0 --resample -o again.h5 --seed 3");
  EXPECT_TRUE(torch::equal(read(folder, "again.h5", "/x"), x));
}

TEST(SampleTarget, TakesOptionsOfTargetKernelBaseAndSchedule) {
  const Folder folder;
  expect_fine(
      folder.run("sample-target double_well:features=3,b=-2 --kernel metropolis:steps=5,step_size=0.3 --schedule "
                 ".2,.6,1 --base student_t:degrees=5 -n 300 -o samples.h5"),
      {"3 features", "metropolis     0.2", "metropolis       1"});
  expect_fine(
      folder.run("sample-target funnel:features=2 --kernel langevin:steps=3,step_size=0.02 --blocks 3 -n 300 -o "
                 "funnel.h5 --dtype float32"),
      {"all", "(exactly 0)"});
  expect_fine(folder.run(std::string("sample-target plugin:library=") + DIFFEO_RING + " -n 300 --blocks 3 -o ring.h5"),
              {"ring, 2 features"});
}

TEST(SampleTarget, TrainsAFlowAndUsesItAgain) {
  const Folder folder;
  const auto trained = folder.run(
      "sample-target double-well --train-steps 40 --train-batch 64 --layers 2 --width 8 --kernel "
      "metropolis:steps=5,step_size=0.25 --save model.h5 -n 2000 -o first.h5");
  expect_fine(trained, {"training   40 steps", "metropolis"});
  const auto used = folder.run("sample-target double-well --flow model.h5 -n 2000 -o second.h5");
  expect_fine(used, {"metropolis"});
  EXPECT_TRUE(torch::equal(read(folder, "first.h5", "/x"), read(folder, "second.h5", "/x")));
  // With samples of the target, and as a model for the other subcommands.
  expect_fine(folder.run("sample-target double-well --train-steps 10 --data first.h5 -n 100 -o third.h5"),
              {"training"});
  expect_fine(folder.run("sample model.h5 -n 10 -o more.h5"), {"10 samples"});
  expect_fine(folder.run("evaluate model.h5 more.h5 --x /x --paths 5"), {"log-likelihood from"});
  EXPECT_NE(folder.run("evaluate model.h5 more.h5").errors.find("--paths 100 gives a lower bound"), std::string::npos);
  expect_fine(folder.run("train first.h5 --flow snf --density double_well --layers 2 --width 8 --objective path_kl "
                         "--steps 3 -o trained.h5"),
              {"test log-likelihood at least"});
}

TEST(SampleTarget, MistakesCostOneLineAndNoFile) {
  const Folder folder;
  folder.write("broken.h5", "no model");
  const auto refused = [&](const std::string& arguments, const std::string& words) {
    const auto outcome = folder.run("sample-target " + arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << ::testing::PrintToString(outcome);
    EXPECT_EQ(lines(outcome.errors), 1u) << outcome.errors;
    EXPECT_NE(outcome.errors.find(words), std::string::npos) << "'" << words << "' is not in: " << outcome.errors;
    EXPECT_EQ(folder.files(), std::vector<std::string>{"broken.h5"}) << arguments;
  };
  refused("double-wall -o x.h5", "did you mean 'double_well'?");
  refused("double-well", "output is missing");
  refused("double-well:feature=2 -o x.h5", "did you mean 'features'?");
  refused("double-well:features -o x.h5", "expected double-well:key=value");
  refused("double-well -n 0 -o x.h5", "-n: expected 1 or more");
  refused("double-well --kernel hcm -o x.h5", "did you mean 'hmc'?");
  refused("double-well --kernel hmc:leapfrog=0 -o x.h5", "leapfrog: must be at least 1");
  refused("double-well --kernel hmc:lambda=0.5 -o x.h5", "lambda: is chosen by the annealing");
  refused("double-well --schedule .5,.2,1 -o x.h5", "schedule/1: must grow");
  refused("double-well --blocks 0 -o x.h5", "blocks: must be at least 1");
  refused("double-well --base nothing -o x.h5", "unknown distribution");
  refused("double-well --base uniform -o x.h5", "the base lives on");
  refused("double-well --flow broken.h5 -o x.h5", "broken.h5");
  refused("double-well --flow broken.h5 --blocks 3 -o x.h5", "--blocks belongs to annealing");
  refused("double-well --flow broken.h5 --train-steps 3 -o x.h5", "exclude each other");
  refused("double-well --save m.h5 -o x.h5", "--save belongs to training");
  refused("double-well --train-steps 5 --mixture .5 -o x.h5", "--mixture: needs --data");
  refused("double-well --train-steps 5 --layers 3 -o x.h5", "couplings in pairs");
  refused("double-well --divide 2,0 -o x.h5", "there is no feature 2");
  refused("double-well --divide 2 -o x.h5", "expected FEATURE,VALUE");
  refused("plugin:library=./nothing.so -o x.h5", "./nothing.so: there is no such file");
  refused(std::string("plugin:library=") + DIFFEO_BAD_PLUGIN + ",options=nan -o x.h5", "is not a number at");
}

TEST(SampleTarget, HelpAndListsTellOfIt) {
  const Folder folder;
  expect_fine(folder.run("sample-target --help"), {"TARGET -n COUNT -o SAMPLES.h5", "--train-steps", "--kernel"});
  expect_fine(folder.run("--help"), {"sample-target"});
  expect_fine(folder.run("inspect --targets"), {"double_well: Two wells", "plugin", "log p = ", "phi4"});
}

}  // namespace
}  // namespace diffeo::testing
