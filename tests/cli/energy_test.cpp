// `diffeo train --objective *_score_matching --whiten`: the last matrix set from the data's covariance.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cli/program.h"
#include "diffeo/data/model_file.h"
#include "diffeo/data/table.h"

namespace diffeo::testing {
namespace {

class TrainByScores : public ::testing::Test {
 protected:
  void SetUp() override {
    torch::manual_seed(5);
    std::vector<Column> columns;
    for (const auto* name : {"a", "b", "c"}) columns.push_back({.name = name, .unit = "", .discrete = false});
    TableWriter writer(folder.path("rows.h5"));
    writer.begin("/x", columns, torch::kFloat64);
    const auto mix = torch::tensor({{3.0, 1.0, 0.0}, {0.0, 0.2, 5.0}, {1.0, 1.0, 1.0}}, torch::kFloat64);
    writer.append(torch::randn({3000, 3}, torch::kFloat64).mm(mix) + 7);
    writer.finish();
  }
  /// The mean log-likelihood of the test rows, nats.
  double trained(const std::string& arguments, const std::string& model) const {
    const auto outcome = folder.run("train rows.h5 " + always + arguments + " -o " + model);
    EXPECT_EQ(outcome.code, 0) << ::testing::PrintToString(outcome);
    return read_model(folder.path(model)).metadata.at("test").at("log_likelihood").get<double>();
  }

  const std::string always =
      "--flow ebflow --preprocess none --dtype float64 --objective denoising_score_matching:sigma=0.5 --batch-size 64 ";
  const Folder folder;
};

TEST_F(TrainByScores, WhiteningGivesTheScalesBeforeAndAfter) {
  const double never = trained("--steps 2", "never.h5"), before = trained("--steps 2 --whiten before", "before.h5");
  EXPECT_GT(before, never + 1);
  const double trained_long = trained("--steps 300 --whiten before", "long.h5"),
               after = trained("--steps 300 --whiten both", "both.h5");
  EXPECT_GT(after, trained_long) << "the noise widens what score matching learns, the last step takes that back";
  // What was said of the test rows holds for the model in the file.
  ASSERT_EQ(folder.run("evaluate both.h5 rows.h5 --split test -o values.h5").code, 0);
  const auto values = read_table({folder.path("values.h5"), "/log_prob", {}}, torch::kFloat64).values;
  EXPECT_NEAR(values.mean().item<double>(), after, 1e-9);
}

TEST_F(TrainByScores, GoesOnFromTheMatrixAsItWasTrained) {
  const auto whole = trained("--steps 40 --schedule constant --whiten both", "whole.h5");
  trained("--steps 20 --schedule constant --whiten both", "parts.h5");
  EXPECT_EQ(trained("--steps 40 --schedule constant --whiten both --resume", "parts.h5"), whole);
  const auto other = folder.run("train rows.h5 " + always + "--steps 50 --schedule constant --resume -o parts.h5");
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.errors.find("another --whiten"), std::string::npos) << other.errors;
}

}  // namespace
}  // namespace diffeo::testing
