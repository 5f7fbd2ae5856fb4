// The program's fair normalizing flows: train, certify and encode a small table; bad input costs one line.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cli/program.h"
#include "diffeo/data/table.h"

namespace diffeo::testing {
namespace {

constexpr uint64_t seed = 21;

/// 300 rows of two groups that are apart in one column, with a label that the other one tells.
class FairProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    torch::manual_seed(seed);
    group = torch::arange(300).remainder(2);
    const auto noise = torch::randn({300, 3});
    label = (noise.select(1, 1) > 0).to(torch::kLong);
    x = noise.clone();
    x.select(1, 0).add_(2 * group);
    write("good.h5", group, label);
  }

  void write(const std::string& file, const Tensor& sensitive, const Tensor& labels) const {
    TableWriter writer(folder.path(file));
    std::vector<Column> columns;
    for (const char* name : {"a", "b", "c"}) columns.push_back({.name = name, .unit = "", .discrete = false});
    writer.begin("/x", columns, torch::kFloat32);
    writer.append(x);
    writer.begin("/sensitive", {{.name = "sensitive", .unit = "", .discrete = false}}, torch::kFloat64, true);
    writer.append(sensitive.to(torch::kFloat64));
    writer.begin("/label", {{.name = "label", .unit = "", .discrete = false}}, torch::kFloat64, true);
    writer.append(labels.to(torch::kFloat64));
    writer.finish();
  }

  void expect_refused(const std::string& arguments, const std::vector<std::string>& words) {
    SCOPED_TRACE("diffeo " + arguments);
    const auto before = folder.files();
    const auto outcome = folder.run(arguments);
    EXPECT_EQ(outcome.code, 2) << ::testing::PrintToString(outcome);
    EXPECT_EQ(lines(outcome.errors), 1u) << outcome.errors;
    for (const auto& word : words)
      EXPECT_NE(outcome.errors.find(word), std::string::npos) << "'" << word << "' is not in: " << outcome.errors;
    EXPECT_EQ(folder.files(), before) << "something was written";
  }

  const Folder folder;
  Tensor x, group, label;
  const std::string of_data = " --x /x --sensitive /sensitive --label /label -o fair.h5 --steps 20 --density-steps 20 ";
};

TEST_F(FairProgram, TrainsCertifiesAndEncodes) {
  const auto trained =
      folder.run("fair train good.h5" + of_data + "--gamma 0,0.5 --evaluate-every 10 --components 2 --restarts 2");
  ASSERT_EQ(trained.code, 0) << ::testing::PrintToString(trained);
  const auto certified = folder.run("fair certify fair.h5 good.h5 --samples 500 --adversary-steps 50 --csv out.csv");
  ASSERT_EQ(certified.code, 0) << ::testing::PrintToString(certified);
  EXPECT_NE(certified.output.find("bound"), std::string::npos);
  const auto encoded = folder.run("fair encode fair.h5 good.h5 --gamma 0.5 -o encoded.h5");
  ASSERT_EQ(encoded.code, 0) << ::testing::PrintToString(encoded);
  const auto z = read_table({folder.path("encoded.h5"), "/train/x", {}}, torch::kFloat32);
  EXPECT_EQ(z.values.size(0), 240);
  EXPECT_EQ(z.values.size(1), 3);
  const auto inspected = folder.run("inspect fair.h5");
  EXPECT_EQ(lines(inspected.errors), inspected.code == 0 ? 0u : 1u) << ::testing::PrintToString(inspected);
  expect_refused("fair encode fair.h5 good.h5 -o other.h5", {"--gamma", "several trade-offs"});
  expect_refused("fair encode fair.h5 good.h5 --gamma 0.3 -o other.h5", {"no model of gamma 0.3"});
  // The same seed gives the same model.
  const auto again = folder.run("fair train good.h5" + of_data +
                                "--gamma 0,0.5 --evaluate-every 10 --components 2 --restarts 2 --overwrite");
  ASSERT_EQ(again.code, 0) << ::testing::PrintToString(again);
  ASSERT_EQ(folder.run("fair encode fair.h5 good.h5 --gamma 0.5 -o again.h5").code, 0);
  EXPECT_TRUE(read_table({folder.path("again.h5"), "/train/x", {}}, torch::kFloat32).values.equal(z.values));
}

TEST_F(FairProgram, MatchesCells) {
  const auto trained = folder.run("fair train good.h5" + of_data + "--method matching --cell-steps 40 --gamma 0,1");
  ASSERT_EQ(trained.code, 0) << ::testing::PrintToString(trained);
  const auto certified = folder.run("fair certify fair.h5 good.h5 --samples 500 --adversary-steps 50");
  ASSERT_EQ(certified.code, 0) << ::testing::PrintToString(certified);
  const auto encoded = folder.run("fair encode fair.h5 good.h5 --gamma 1 -o encoded.h5");
  ASSERT_EQ(encoded.code, 0) << ::testing::PrintToString(encoded);
}

TEST_F(FairProgram, BadInputIsOneLine) {
  write("labels.h5", group, label * 3);
  write("one_group.h5", group * 0, label);
  write("gap.h5", group * 2, label);
  write("fraction.h5", group * 0.5, label);
  {
    TableWriter writer(folder.path("short.h5"));
    writer.begin("/x", {{.name = "a", .unit = "", .discrete = false}, {.name = "b", .unit = "", .discrete = false}},
                 torch::kFloat32);
    writer.append(x.narrow(1, 0, 2));
    writer.begin("/sensitive", {{.name = "s", .unit = "", .discrete = true}}, torch::kLong, true);
    writer.append(group.narrow(0, 0, 200));
    writer.begin("/label", {{.name = "l", .unit = "", .discrete = true}}, torch::kLong, true);
    writer.append(label);
    writer.finish();
  }
  const auto train = [&](const std::string& file) { return "fair train " + file + of_data; };
  expect_refused(train("labels.h5"), {"labels must be 0 or 1, but a row has 3"});
  expect_refused(train("one_group.h5"), {"one group only"});
  expect_refused(train("gap.h5"), {"group 1 of 0 to 2 has no rows"});
  expect_refused(train("fraction.h5"), {"a row has 0.5"});
  expect_refused(train("short.h5"), {"short.h5", "200 rows", "300"});
  expect_refused(train("good.h5") + "--gamma 0,1.5", {"--gamma", "[0, 1]", "1.5"});
  expect_refused(train("good.h5") + "--criterion parity", {"criterion", "demographic_parity"});
  expect_refused(train("good.h5") + "--density gmm", {"density", "gmm"});
  expect_refused("fair train good.h5 --x /x --label /label -o fair.h5", {"--sensitive"});
  expect_refused("fair certify good.h5 good.h5", {"good.h5"});
  expect_refused("fair tarin good.h5", {"train"});
}

}  // namespace
}  // namespace diffeo::testing
