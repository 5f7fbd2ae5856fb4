// The program's fair normalizing flows: train, certify and encode a small table; bad input costs one line.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <fstream>
#include <map>
#include <sstream>

#include "cli/program.h"
#include "diffeo/data/model_file.h"
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

  /// The lines of a CSV file by the names of its columns. Empty fields are left out; `all` is -1.
  std::vector<std::map<std::string, double>> csv(const std::string& file) const {
    std::ifstream stream(folder.path(file));
    std::vector<std::string> names;
    std::vector<std::map<std::string, double>> table;
    for (std::string line; std::getline(stream, line);) {
      std::vector<std::string> fields;
      std::stringstream split(line);
      for (std::string field; std::getline(split, field, ',');) fields.push_back(field);
      if (names.empty()) {
        names = fields;
        continue;
      }
      table.emplace_back();
      for (size_t i = 0; i < fields.size(); ++i)
        if (!fields[i].empty()) table.back()[names.at(i)] = fields[i] == "all" ? -1 : std::stod(fields[i]);
    }
    return table;
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
  EXPECT_EQ(inspected.code, 0) << ::testing::PrintToString(inspected);
  for (const auto* word : {"fair", "demographic_parity", "gammas"})
    EXPECT_NE(inspected.output.find(word), std::string::npos) << "'" << word << "' is not in: " << inspected.output;
  expect_refused("fair encode fair.h5 good.h5 -o other.h5", {"--gamma", "several trade-offs"});
  expect_refused("fair encode fair.h5 good.h5 --gamma 0.3 -o other.h5", {"no model of gamma 0.3"});
  // The same seed gives the same model.
  const auto again = folder.run("fair train good.h5" + of_data +
                                "--gamma 0,0.5 --evaluate-every 10 --components 2 --restarts 2 --overwrite");
  ASSERT_EQ(again.code, 0) << ::testing::PrintToString(again);
  ASSERT_EQ(folder.run("fair encode fair.h5 good.h5 --gamma 0.5 -o again.h5").code, 0);
  EXPECT_TRUE(read_table({folder.path("again.h5"), "/train/x", {}}, torch::kFloat32).values.equal(z.values));
}

/// The cells of one column are its quarters. Group 1 is 2 units above group 0 in it, so that matching by rank has work.
TEST_F(FairProgram, MatchesCells) {
  const auto trained =
      folder.run("fair train good.h5" + of_data + "--columns a --method matching --cell-steps 300 --gamma 0,1");
  ASSERT_EQ(trained.code, 0) << ::testing::PrintToString(trained);
  EXPECT_NE(trained.output.find("cells     4 combinations of the values of 1 columns"), std::string::npos)
      << trained.output;
  const auto certified = folder.run("fair certify fair.h5 good.h5 --samples 500 --adversary-steps 50 --csv cells.csv");
  ASSERT_EQ(certified.code, 0) << ::testing::PrintToString(certified);
  const auto table = csv("cells.csv");
  ASSERT_EQ(table.size(), 2u);
  // Matched over all cells the groups are told worst, and the bound on cells leaves no room for chance.
  EXPECT_LE(table[1].at("bound"), table[0].at("bound") + 1e-9);
  for (const auto& line : table) {
    EXPECT_GE(line.at("bound"), 0.5);
    EXPECT_LE(line.at("bound"), 1);
    EXPECT_EQ(line.at("clopper_pearson"), line.at("bound"));
  }
  const auto encoded = folder.run("fair encode fair.h5 good.h5 --gamma 1 -o encoded.h5");
  ASSERT_EQ(encoded.code, 0) << ::testing::PrintToString(encoded);
  const auto z = read_table({folder.path("encoded.h5"), "/train/x", {}}, torch::kFloat32).values;
  ASSERT_EQ(z.sizes(), at::IntArrayRef({240, 4}));
  EXPECT_TRUE(z.sum(1).eq(1).all().item<bool>()) << "one cell each";
  const auto groups = read_table({folder.path("encoded.h5"), "/train/sensitive", {}}, torch::kFloat32).values.flatten();
  // With gamma 1 the map is a permutation of the cells, and it moves the group's rows whole: the counts of group 0
  // after it are those of before in another order.
  ASSERT_EQ(folder.run("fair encode fair.h5 good.h5 --gamma 0 -o kept.h5").code, 0);
  const auto kept = read_table({folder.path("kept.h5"), "/train/x", {}}, torch::kFloat32).values;
  const auto counts = [&](const Tensor& cells) {
    return std::get<0>(cells.masked_select(groups.eq(0).unsqueeze(1)).view({-1, 4}).sum(0).sort());
  };
  EXPECT_TRUE(counts(z).equal(counts(kept)));
}

TEST_F(FairProgram, EqualizedOddsAndThreeGroupsHaveALineForEachLabel) {
  const auto flags = of_data + "--gamma 0.5 --components 1 ";
  ASSERT_EQ(folder.run("fair train good.h5 --criterion equalized_odds" + flags).code, 0);
  const auto quick = std::string(" --samples 2000 --adversary-steps 50 --csv out.csv");
  ASSERT_EQ(folder.run("fair certify fair.h5 good.h5" + quick).code, 0);
  const auto odds = csv("out.csv");
  ASSERT_EQ(odds.size(), 2u);
  EXPECT_EQ(odds[0].at("label"), 0);
  EXPECT_EQ(odds[1].at("label"), 1);
  EXPECT_NE(odds[0].at("gap"), odds[1].at("gap")) << "of the rows of each label";

  write("three.h5", torch::arange(300).remainder(3), label);
  ASSERT_EQ(folder.run("fair train three.h5 --overwrite" + flags).code, 0);
  ASSERT_EQ(folder.run("fair certify fair.h5 three.h5" + quick).code, 0);
  const auto three = csv("out.csv");
  ASSERT_EQ(three.size(), 1u);
  EXPECT_GE(three[0].at("bound"), 1.0 / 3 - 1e-9);
  EXPECT_NEAR(three[0].at("delta"), std::max(0.0, (3 * three[0].at("bound") - 1) / 2), 1e-6);
  EXPECT_EQ(three[0].count("delta_weighted"), 0u) << "it is for two groups";
}

TEST_F(FairProgram, ATensorTooManyOrTooFewIsNamed) {
  ASSERT_EQ(folder.run("fair train good.h5 --gamma 0 --components 1" + of_data).code, 0);
  const auto whole = read_model(folder.path("fair.h5"));
  auto model = whole;
  model.state.emplace_back("gamma0.encoder0.extra", torch::zeros({1}));
  write_model(folder.path("extra.h5"), model);
  expect_refused("fair certify extra.h5 good.h5", {"extra.h5:/state/gamma0.encoder0.extra", "no tensor of this name"});
  model = whole;
  const auto name = model.state.front().first;
  model.state.erase(model.state.begin());
  write_model(folder.path("missing.h5"), model);
  expect_refused("fair certify missing.h5 good.h5", {"missing.h5:/state/" + name + ": is missing"});
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
  expect_refused(train("good.h5") + "--init-scale=-1", {"init_scale", "-1"});
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
