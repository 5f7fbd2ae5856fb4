// Injective flows from the command line: training, evaluation, samples, and what is refused.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cli/program.h"
#include "diffeo/data/table.h"

namespace diffeo::testing {
namespace {

class InjectiveProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    torch::manual_seed(7);
    const auto t = torch::randn({400, 2});
    TableWriter writer(folder.path("surface.h5"));
    writer.begin("/x",
                 {{.name = "a", .unit = "", .discrete = false},
                  {.name = "b", .unit = "", .discrete = false},
                  {.name = "c", .unit = "", .discrete = false}},
                 torch::kFloat32);
    writer.append(torch::cat({t, t.prod(1, true)}, 1));
    writer.finish();
  }
  void expect_refused(const std::string& arguments, const std::string& words) {
    SCOPED_TRACE("diffeo " + arguments);
    const auto outcome = folder.run(arguments);
    EXPECT_EQ(outcome.code, 2) << ::testing::PrintToString(outcome);
    EXPECT_EQ(lines(outcome.errors), 1u) << outcome.errors;
    EXPECT_NE(outcome.errors.find(words), std::string::npos) << outcome.errors;
  }

  const Folder folder;
};

TEST_F(InjectiveProgram, TrainsEvaluatesAndSamples) {
  const auto trained = folder.run(
      "train surface.h5 --flow injective --latent 2 --width 16 --depth 1 --objective "
      "free_form_injective:beta=5,noise=0.01 "
      "--steps 50 -o model.h5");
  ASSERT_EQ(trained.code, 0) << ::testing::PrintToString(trained);
  EXPECT_NE(trained.output.find("test log-likelihood on the manifold"), std::string::npos) << trained.output;
  const auto evaluated = folder.run("evaluate model.h5 surface.h5 -o out.h5");
  ASSERT_EQ(evaluated.code, 0) << ::testing::PrintToString(evaluated);
  for (const auto* word :
       {"nats on the manifold of 2 dimensions", "reconstruction", "distance", "/projection, /log_prob and /distance"})
    EXPECT_NE(evaluated.output.find(word), std::string::npos) << evaluated.output;
  for (const auto* object : {"/projection", "/log_prob", "/distance"})
    EXPECT_EQ(table_info({folder.path("out.h5"), object, {}}).rows, 400);
  expect_refused("evaluate model.h5 surface.h5 --paths 3", "--paths: model.h5 holds an injective flow");
  const auto sampled = folder.run("sample model.h5 -n 30 -o samples.h5");
  ASSERT_EQ(sampled.code, 0) << ::testing::PrintToString(sampled);
  const auto info = table_info({folder.path("samples.h5"), "/x", {}});
  EXPECT_EQ(info.rows, 30);
  EXPECT_EQ(info.columns.size(), 3u);
}

TEST_F(InjectiveProgram, ManifoldsOfNoUseAreRefused) {
  const std::string objective = " --objective free_form_injective --steps 2 -o model.h5";
  expect_refused("train surface.h5 --flow injective --latent 3" + objective,
                 "latent: must be at least 1 and below the 3");
  expect_refused("train surface.h5 --flow injective --latent 0" + objective, "latent: injective needs the dimension");
  expect_refused("train surface.h5 --flow injective --latent -1" + objective, "latent: must be at least 1");
  expect_refused("train surface.h5 --flow nsf --latent 2 --steps 2 -o model.h5", "latent: has no meaning for nsf");
}

TEST_F(InjectiveProgram, ObjectivesThatDoNotFitAreRefused) {
  expect_refused("train surface.h5 --flow nsf --objective free_form_injective --steps 2 -o model.h5",
                 "the flow has no injective layer");
  expect_refused("train surface.h5 --flow injective --latent 2 --steps 2 -o model.h5",
                 "an injective flow gives points off");
  expect_refused(
      "train surface.h5 --flow injective --latent 2 --objective free_form_injective:beta=-1 --steps 2 -o model.h5",
      "beta: must be above 0");
  expect_refused(
      "train surface.h5 --flow injective --latent 2 --objective free_form_injective:volume=none --steps 2 -o model.h5",
      "volume: unknown value 'none'");
}

}  // namespace
}  // namespace diffeo::testing
