// diffeo intervene, from rows to effects, and what it says to bad input.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "cli/program.h"
#include "diffeo/data/table.h"

namespace diffeo::testing {
namespace {

constexpr uint64_t seed = 31;

void add(TableWriter& writer, const std::string& object, const Tensor& rows, const std::vector<std::string>& names) {
  std::vector<Column> columns;
  for (const auto& name : names) columns.push_back({.name = name, .unit = "", .discrete = false});
  writer.begin(object, columns, torch::kFloat32, rows.dim() == 1);
  writer.append(rows);
}

/// One-step estimates and standard errors of a CSV file of effects, whose names hold no comma but in quotes.
std::vector<std::pair<double, double>> effects_in(const std::string& path) {
  std::ifstream stream(path);
  std::vector<std::pair<double, double>> found;
  std::string line;
  std::getline(stream, line);
  while (std::getline(stream, line)) {
    std::stringstream rest(line.substr(line.rfind('"') + 2));
    std::vector<double> values;
    for (std::string field; std::getline(rest, field, ',');) values.push_back(std::stod(field));
    found.emplace_back(values.at(1), values.at(2));
  }
  return found;
}

class Intervene : public ::testing::Test {
 protected:
  static constexpr const char* common =
      " --treatment /train/t --outcome /train/y --folds 2 --nuisance-steps 40 --target-steps 60 --width 8 --seed 3";

  void SetUp() override {
    SCOPED_TRACE(c10::str("seed ", seed));
    torch::manual_seed(seed);
    const auto x = torch::randn({200, 2});
    auto t = torch::arange(200).remainder(2).to(torch::kFloat32);
    auto y = x.select(1, 0) + 2 * t + 0.5 * torch::randn({200});
    TableWriter writer(folder.path("study.h5"));
    add(writer, "/train/x", x, {"age", "weight"});
    add(writer, "/train/t", t, {"dose"});
    add(writer, "/train/y", y, {"pressure"});
    add(writer, "/valid/x", x, {"age", "weight"});
    add(writer, "/valid/t", t, {"dose"});
    add(writer, "/valid/y", y, {"pressure"});
    add(writer, "/train/never", torch::zeros({200}), {"never"});
    add(writer, "/train/half", t / 2, {"half"});
    add(writer, "/train/many", torch::arange(200).to(torch::kFloat32), {"many"});
    add(writer, "/train/short", y.slice(0, 0, 150), {"short"});
    auto rare = torch::zeros({200});
    rare[7] = 1;
    add(writer, "/train/rare", rare, {"rare"});
    auto missing = x.clone();
    missing[17][1] = NAN;
    add(writer, "/train/missing", missing, {"age", "weight"});
    writer.finish();
  }

  void expect_refused(const std::string& arguments, const std::vector<std::string>& words) {
    SCOPED_TRACE("diffeo intervene " + arguments);
    const auto before = folder.files();
    const auto outcome = folder.run("intervene " + arguments);
    EXPECT_EQ(outcome.code, 2) << ::testing::PrintToString(outcome);
    EXPECT_EQ(lines(outcome.errors), 1u) << outcome.errors;
    EXPECT_TRUE(outcome.errors.starts_with("diffeo intervene: ")) << outcome.errors;
    for (const auto& word : words)
      EXPECT_NE(outcome.errors.find(word), std::string::npos) << "'" << word << "' is not in: " << outcome.errors;
    EXPECT_EQ(folder.files(), before) << "something was written";
  }

  const Folder folder;
};

TEST_F(Intervene, FromRowsToEffects) {
  const auto trained = folder.run(
      std::string("intervene train study.h5 --covariates /train/x -o model.h5 --splits train,valid") + common);
  ASSERT_EQ(trained.code, 0) << ::testing::PrintToString(trained);
  EXPECT_NE(trained.output.find("400 rows, 2 covariates, outcome pressure"), std::string::npos) << trained.output;
  EXPECT_NE(trained.output.find("dose: 0 (200 rows), 1 (200 rows)"), std::string::npos) << trained.output;
  EXPECT_NE(trained.output.find("trimmed"), std::string::npos);

  const auto density = folder.run("intervene density model.h5 --do 1 --grid -20:25:3001 -o density.h5");
  ASSERT_EQ(density.code, 0) << ::testing::PrintToString(density);
  const auto table = read_table({folder.path("density.h5"), "/x", {}}, torch::kFloat64);
  ASSERT_EQ(table.columns.size(), 2u);
  EXPECT_EQ(table.columns[0].name, "pressure");
  EXPECT_EQ(table.columns[1].name, "density_do_1");
  EXPECT_NEAR(table.values.select(1, 1).sum().item<double>() * 45 / 3000, 1, 1e-2);

  const auto sampled = folder.run("intervene sample model.h5 --do 1 -n 500 -o samples.h5 --flow flow.h5");
  ASSERT_EQ(sampled.code, 0) << ::testing::PrintToString(sampled);
  EXPECT_EQ(read_table({folder.path("samples.h5"), "/x", {}}).values.sizes(), at::IntArrayRef({500, 1}));
  EXPECT_EQ(folder.run("evaluate flow.h5 samples.h5").code, 0);

  const auto effects = folder.run("intervene effects model.h5 study.h5 -o effects.csv --quantiles 0.5");
  ASSERT_EQ(effects.code, 0) << ::testing::PrintToString(effects);
  EXPECT_NE(effects.output.find("each judged by nuisances that did not see it"), std::string::npos) << effects.output;
  std::ifstream stream(folder.path("effects.csv"));
  EXPECT_EQ(lines(std::string(std::istreambuf_iterator<char>(stream), {})), 5u);
  const auto resampled = folder.run("intervene effects model.h5 study.h5 -o drawn.csv --quantiles 0.5 --bootstrap 50");
  ASSERT_EQ(resampled.code, 0) << ::testing::PrintToString(resampled);
  EXPECT_NE(resampled.output.find("50 bootstrap draws"), std::string::npos) << resampled.output;
  // The estimates are the same, the errors are near.
  const auto of = [&](const char* file) { return effects_in(folder.path(file)); };
  const auto by_influence = of("effects.csv"), by_bootstrap = of("drawn.csv");
  ASSERT_EQ(by_bootstrap.size(), 4u);
  EXPECT_EQ(by_bootstrap[0].first, by_influence[0].first);
  EXPECT_NE(by_bootstrap[0].second, by_influence[0].second);
  EXPECT_NEAR(by_bootstrap[0].second / by_influence[0].second, 1, 0.5);
  const auto others = folder.run("intervene effects model.h5 study.h5 --splits valid");
  EXPECT_NE(others.output.find("not those of training"), std::string::npos) << others.output;

  const auto inspected = folder.run("inspect model.h5");
  EXPECT_EQ(inspected.code, 0) << ::testing::PrintToString(inspected);
  EXPECT_NE(inspected.output.find("interventional"), std::string::npos) << inspected.output;

  expect_refused("density model.h5 --do 2", {"--do", "treatment 2 is unknown", "0, 1"});
  expect_refused("density model.h5 --grid 3:1:10", {"--grid", "lower below upper"});
  expect_refused("density model.h5 --grid 3:1", {"--grid", "lower:upper:count"});
  expect_refused("sample model.h5 --do 7 -o s.h5", {"--do", "treatment 7 is unknown"});
  expect_refused("sample model.h5 -o s.h5", {"--do", "one value"});
  expect_refused("effects model.h5 study.h5 --of 1 --against 1", {"same treatment"});
  expect_refused("effects model.h5 study.h5 --quantiles 0.5,1.5", {"1.5"});
  expect_refused("effects model.h5 study.h5 --bootstrap 1", {"--bootstrap", "at least 2"});
  expect_refused("effects model.h5 study.h5 --column height", {"height", "pressure"});
  expect_refused("density flow.h5", {"flow.h5", "no model of `diffeo intervene train`"});
}

TEST_F(Intervene, BadStudiesAreRefusedInOneLine) {
  const std::string train = "train study.h5 -o model.h5 ", x = "--covariates /train/x ", t = "--treatment /train/t ",
                    y = "--outcome /train/y ";
  expect_refused("trian study.h5", {"unknown action 'trian'", "did you mean 'train'?"});
  expect_refused(train + t + y, {"--covariates", "is missing"});
  expect_refused("train study.h5 " + x + t + y, {"--output is missing"});
  expect_refused(train + x + y + "--treatment /train/never", {"/train/never", "treatment 0", "never given"});
  expect_refused(train + x + t + y + "--treatments 0,1,2", {"treatment 2 was never given", "0, 1"});
  expect_refused(train + x + y + "--treatment /train/half", {"/train/half", "row 1 holds 0.5", "whole number"});
  expect_refused(train + x + y + "--treatment /train/many", {"/train/many", "200 different values"});
  expect_refused(train + x + y + "--treatment /train/x", {"/train/x", "2 columns", "choose one"});
  expect_refused(train + x + y + "--treatment /train/rare", {"given in 1 rows"});
  expect_refused(train + t + y + "--covariates /train/missing", {"/train/missing", "row 17", "weight"});
  expect_refused(train + x + t + "--outcome /train/short", {"/train/short", "150 rows", "200"});
  expect_refused(train + x + t + "--outcome /train/nothing", {"/train/nothing"});
  expect_refused(train + x + t + y + "--splits train,test", {"/test/x"});
  expect_refused(train + x + t + y + "--clip 0.7", {"clip", "0.7"});
  expect_refused(train + x + t + y + "--correction none", {"correction", "plug_in, iptw, aiptw"});
}

TEST_F(Intervene, HelpOfEveryActionHasExamplesAndTheCommonOptions) {
  for (const std::string action : {"train", "density", "sample", "effects"}) {
    SCOPED_TRACE(action);
    const auto outcome = folder.run("intervene " + action + " --help");
    EXPECT_EQ(outcome.code, 0);
    for (const auto* word : {"usage: diffeo intervene ", "examples:\n  diffeo intervene ", "--config", "--device"})
      EXPECT_NE(outcome.output.find(word), std::string::npos) << word;
  }
}

}  // namespace
}  // namespace diffeo::testing
