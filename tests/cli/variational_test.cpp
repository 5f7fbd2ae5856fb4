// `diffeo train --target`: flows learned from a density instead of a table, and what is refused in one line.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cli/program.h"
#include "diffeo/data/model_file.h"
#include "diffeo/data/table.h"

namespace diffeo::testing {
namespace {

const std::string small = " --flow realnvp --layers 2 --width 8 --depth 1 --batch-size 64";

class TrainOnTarget : public ::testing::Test {
 protected:
  void SetUp() override {
    torch::manual_seed(7);
    std::vector<Column> columns;
    for (const auto* name : {"a", "b"}) columns.push_back({.name = name, .unit = "", .discrete = false});
    TableWriter writer(folder.path("rows.h5"));
    writer.begin("/x", columns, torch::kFloat32);
    writer.append(torch::randn({300, 2}));
    writer.finish();
  }
  Outcome trained(const std::string& arguments) const {
    const auto outcome = folder.run("train " + arguments + small);
    EXPECT_EQ(outcome.code, 0) << ::testing::PrintToString(outcome);
    return outcome;
  }
  void expect_refused(const std::string& arguments, const std::vector<std::string>& words) const {
    SCOPED_TRACE("diffeo train " + arguments);
    const auto before = folder.files();
    const auto outcome = folder.run("train " + arguments + small + " --steps 2 -o out.h5");
    EXPECT_EQ(outcome.code, 2) << ::testing::PrintToString(outcome);
    EXPECT_EQ(lines(outcome.errors), 1u) << outcome.errors;
    for (const auto& word : words)
      EXPECT_NE(outcome.errors.find(word), std::string::npos) << "'" << word << "' is not in: " << outcome.errors;
    EXPECT_EQ(folder.files(), before) << "something was written";
  }

  const Folder folder;
};

TEST_F(TrainOnTarget, WithoutData) {
  const auto outcome =
      trained("--target double_well:features=2 --objective reverse_kl:estimator=path,anneal=10 --steps 30 -o model.h5");
  for (const auto* words : {"double_well: 2 features", "effective sample size", "log Z"})
    EXPECT_NE(outcome.output.find(words), std::string::npos) << outcome.output;
  const auto model = read_model(folder.path("model.h5"));
  const auto objective = model.metadata.at("objective");
  EXPECT_EQ(objective.at("type"), "reverse_kl");
  EXPECT_EQ(objective.at("target").at("type"), "double_well");
  EXPECT_GT(model.metadata.at("target").at("effective_sample_size").get<double>(), 0);
  EXPECT_EQ(folder.run("sample model.h5 -n 10 -o drawn.h5").code, 0);
  // The target may stand inside of the objective, and a finished run has no more to do.
  trained("--objective reverse_kl:target={\"type\":\"banana\"},estimator=reparametrised --steps 3 -o other.h5");
  EXPECT_EQ(read_model(folder.path("other.h5")).metadata.at("objective").at("target").at("type"), "banana");
}

TEST_F(TrainOnTarget, GoesOnWhereItWasStopped) {
  const std::string run = "--target banana --objective reverse_kl:anneal=20 --seconds 60 --schedule constant --steps ";
  trained(run + "10 -o model.h5");
  trained(run + "30 -o model.h5 --resume");
  trained(run + "30 -o whole.h5");
  const auto parts = read_model(folder.path("model.h5")), whole = read_model(folder.path("whole.h5"));
  ASSERT_EQ(parts.state.size(), whole.state.size());
  for (size_t i = 0; i < whole.state.size(); ++i)
    EXPECT_TRUE(parts.state[i].second.equal(whole.state[i].second)) << whole.state[i].first;
}

TEST_F(TrainOnTarget, WithPointsOfTheTarget) {
  const auto outcome =
      trained("rows.h5 --target gaussian_mixture:features=2,radius=1 --objective forward_kl --steps 20 -o model.h5");
  EXPECT_NE(outcome.output.find("effective sample size"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("test log-likelihood"), std::string::npos) << outcome.output;
}

TEST_F(TrainOnTarget, MistakesCostOneLine) {
  expect_refused("--objective reverse_kl", {"reverse_kl", "needs a target", "--target"});
  expect_refused("rows.h5 --objective forward_kl", {"forward_kl needs a target", "--target"});
  expect_refused("--target double_well", {"maximum_likelihood", "takes no target", "reverse_kl"});
  expect_refused("", {"data is missing"});
  expect_refused("--target no_such --objective reverse_kl", {"--target", "no_such", "double_well"});
  expect_refused("--target double_well:wells=3 --objective reverse_kl", {"--target", "'wells'", "known keys"});
  expect_refused("rows.h5 --target banana --objective reverse_kl", {"reads no data", "rows.h5"});
  expect_refused("--target banana --objective reverse_kl --columns a", {"--columns", "draws its own points"});
  expect_refused("--target banana --objective reverse_kl --noise 0.1", {"--noise", "draws its own points"});
  expect_refused("rows.h5 --target banana --objective forward_kl --noise 0.1", {"--noise", "forward_kl"});
  expect_refused("rows.h5 --target banana:features=3 --objective forward_kl",
                 {"forward_kl", "(*batch, 3)", "(*batch, 2)"});
  expect_refused("--target banana --objective reverse_kl:estimator=slow", {"--objective", "estimator", "'slow'"});
  expect_refused("--target banana --objective reverse_kl:target=banana", {"exclude each other"});
  expect_refused("--target banana --objective reverse_kl --dropout 0.1", {"dropout", "estimator path"});
}

}  // namespace
}  // namespace diffeo::testing
