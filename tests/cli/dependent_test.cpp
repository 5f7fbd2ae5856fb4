// Training on dependent rows, and association of markers, as a user asks for them; each mistake costs exit code 2 and
// one line.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <fstream>

#include "cli/program.h"
#include "diffeo/data/model_file.h"
#include "diffeo/data/table.h"

namespace diffeo::testing {
namespace {

constexpr uint64_t seed = 17;
constexpr int64_t families = 40, rows = 160;

void put(TableWriter& writer, const std::string& object, const Tensor& values, const std::vector<std::string>& names,
         torch::Dtype dtype = torch::kFloat32) {
  std::vector<Column> columns;
  for (const auto& name : names) columns.push_back({.name = name, .unit = "", .discrete = false});
  const bool flat = values.dim() == 1;
  writer.begin(object, columns, dtype, flat);
  writer.append(values);
}

std::vector<std::string> numbered(int64_t count) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) names.push_back(c10::str("c", i));
  return names;
}

class DependentRows : public ::testing::Test {
 protected:
  void SetUp() override {
    torch::manual_seed(seed);
    family = torch::arange(families).repeat_interleave(rows / families);
    const auto shared = torch::randn({families, 2}).index_select(0, family);
    const auto x = std::sqrt(0.6) * shared + std::sqrt(0.4) * torch::randn({rows, 2});
    const auto k = (family.unsqueeze(0) == family.unsqueeze(1)).to(torch::kFloat32);
    auto skew = k.clone();
    skew[0][100] = 0.5;
    TableWriter writer(folder.path("visits.h5"));
    put(writer, "/train/x", x, {"a", "b"});
    put(writer, "/valid/x", torch::randn({60, 2}), {"a", "b"});
    put(writer, "/train/family", family, {"family"}, torch::kInt64);
    put(writer, "/train/short", family.narrow(0, 0, 100), {"short"}, torch::kInt64);
    put(writer, "/train/single", torch::arange(rows), {"single"}, torch::kInt64);
    put(writer, "/train/place", torch::arange(rows).flip(0), {"place"}, torch::kInt64);
    put(writer, "/flat/x", x, {"a", "b"});
    put(writer, "/flat/family", family, {"family"}, torch::kInt64);
    put(writer, "/K", k, numbered(rows));
    put(writer, "/small", k.narrow(0, 0, 100).narrow(1, 0, 100), numbered(100));
    put(writer, "/wide", k.narrow(0, 0, 100), numbered(rows));
    put(writer, "/skew", skew, numbered(rows));
    auto holes = k.clone();
    holes[3][50] = holes[50][3] = std::nan("");
    auto impossible = k.clone();
    impossible[3][50] = impossible[50][3] = 5;
    put(writer, "/cut", k.narrow(1, 0, rows - 1), numbered(rows - 1));
    put(writer, "/factor", torch::one_hot(family).to(torch::kFloat32), numbered(families));
    put(writer, "/holes", holes, numbered(rows));
    put(writer, "/impossible", impossible, numbered(rows));
    put(writer, "/train/half", family + 0.5, {"half"});
    put(writer, "/train/below", family - 3, {"below"}, torch::kInt64);
    writer.finish();
  }

  std::string train(const std::string& how) const {
    return "train visits.h5 --flow nsf --layers 1 --width 8 --steps 30 --batch-size 160 " + how + " -o model.h5";
  }
  Outcome run_well(const std::string& arguments) const {
    const auto outcome = folder.run(arguments);
    EXPECT_EQ(outcome.code, 0) << arguments << ::testing::PrintToString(outcome);
    return outcome;
  }
  void expect_refused(const std::string& arguments, const std::string& words) const {
    SCOPED_TRACE(arguments);
    const auto outcome = folder.run(arguments);
    EXPECT_EQ(outcome.code, 2) << ::testing::PrintToString(outcome);
    EXPECT_EQ(lines(outcome.errors), 1u) << outcome.errors;
    EXPECT_NE(outcome.errors.find(words), std::string::npos) << "'" << words << "' is not in: " << outcome.errors;
  }

  const Folder folder;
  Tensor family;
};

TEST_F(DependentRows, AreTrainedOnInEachWay) {
  for (const std::string how :
       {"--groups /train/family", "--groups /train/family --dependence turns", "--groups family --dependence fixed=0.4",
        "--groups /train/family --batches groups --dependence fixed=0.4",
        "--relatedness visits.h5:/K --dependence turns", "--relatedness visits.h5:/factor --dependence fixed=0.4",
        "--relatedness visits.h5:/K --relatedness-rows /train/place --dependence learn"}) {
    const auto outcome = run_well(train("--overwrite " + how));
    EXPECT_NE(outcome.output.find("strength of the dependence"), std::string::npos) << outcome.output;
    const auto model = read_model(folder.path("model.h5"));
    EXPECT_EQ(model.metadata["objective"], "dependent_likelihood");
    run_well("evaluate model.h5 visits.h5 --x /valid/x");
  }
}

TEST_F(DependentRows, KeepTheirGroupsWhenRowsAreSplitByFractions) {
  for (const std::string groups : {"/flat/family", "family"}) {
    const auto outcome = run_well(train("--overwrite --x /flat/x --dependence turns --groups " + groups));
    EXPECT_NE(outcome.output.find("128 rows to train"), std::string::npos) << outcome.output;
    EXPECT_NE(outcome.output.find("groups of up to 4 rows"), std::string::npos) << outcome.output;
    EXPECT_NE(outcome.errors.find("of 16 validation rows are of groups that train too"), std::string::npos)
        << outcome.errors;
    run_well("evaluate model.h5 visits.h5 --split valid");
  }
}

TEST_F(DependentRows, AFactorIsItsMatrix) {
  const auto whole = run_well(train("--overwrite --dependence fixed=0.4 --relatedness visits.h5:/K")),
             factor = run_well(train("--overwrite --dependence fixed=0.4 --relatedness visits.h5:/factor"));
  EXPECT_NE(factor.output.find("visits.h5:/factor, a factor of rank 40, strength 0.4"), std::string::npos)
      << factor.output;
  const auto first_loss = [](const Outcome& outcome) {
    const auto at = outcome.output.find(": loss ");
    return std::stod(outcome.output.substr(at + 7));
  };
  EXPECT_NEAR(first_loss(factor), first_loss(whole), 1e-3);
}

TEST_F(DependentRows, AGridSettlesForItsBest) {
  const auto outcome = run_well(train("--groups /train/family --dependence grid"));
  EXPECT_NE(outcome.output.find("grid      strength 0.9: validation loss"), std::string::npos) << outcome.output;
  const auto metadata = read_model(folder.path("model.h5")).metadata;
  EXPECT_EQ(metadata["grid_strength"], metadata["dependence_strength"]);
}

TEST_F(DependentRows, SayWhatIsWrong) {
  expect_refused(train("--groups /train/family --relatedness visits.h5:/K"), "exclude each other");
  expect_refused(train("--groups /train/short"), "/train/short has 100 rows, but there are 160 training rows");
  expect_refused(train("--groups /train/single"), "every row is a group of its own");
  expect_refused(train("--groups /train/none"), "none");
  expect_refused(train("--groups /train/family --dependence fixed=-0.2"), "between 0 and 0.99, got -0.2");
  expect_refused(train("--groups /train/family --dependence strong"), "expected fixed=STRENGTH, grid, learn or turns");
  expect_refused(train("--groups /train/family --objective maximum_likelihood"), "leave out --objective");
  expect_refused(train("--dependence turns"), "belong to --groups or --relatedness");
  expect_refused(train("--relatedness visits.h5:/small"), "is of 100 rows, but there are 160 training rows");
  expect_refused(train("--relatedness visits.h5:/wide"), "is 100 x 160; expected a square relatedness matrix");
  expect_refused(train("--relatedness visits.h5:/skew"), "must be symmetric, but entry (0, 100) is 0.5");
  expect_refused(train("--relatedness visits.h5:/cut"), "is 160 x 159 and its square part is symmetric");
  expect_refused(train("--relatedness visits.h5:/holes"), "entry (3, 50) is missing or infinite");
  expect_refused(train("--relatedness visits.h5:/impossible"), "it is no covariance");
  expect_refused(train("--groups /train/half"), "--groups: expected whole numbers");
  expect_refused(train("--relatedness visits.h5:/K --relatedness-rows /train/half"), "expected whole numbers");
  expect_refused(train("--relatedness visits.h5:/K --relatedness-rows /train/below"), "holds -3");
  expect_refused(train("--relatedness visits.h5:/none"), "there is no such object");
  expect_refused(train("--relatedness visits.h5"), "expected FILE.h5:/OBJECT");
}

class Association : public DependentRows {
 protected:
  void SetUp() override {
    DependentRows::SetUp();
    const auto parents = torch::randint(3, {families, 60}, torch::kFloat32).index_select(0, family);
    auto dosages = torch::where(torch::rand({rows, 60}) < 0.5, parents, torch::randint(3, {rows, 60}, torch::kFloat32));
    const auto hidden = 1.5 * dosages.select(1, 7) + torch::randn({rows});
    dosages.select(1, 3).fill_(1);  // not a marker
    dosages[5][9] = std::nan("");   // a missing call
    auto phenotype = torch::stack({hidden.exp(), torch::full({rows}, 2.0)}, 1);
    phenotype[11][0] = std::nan("");
    TableWriter writer(folder.path("mice.h5"));
    put(writer, "/x", dosages, numbered(60));
    put(writer, "/y", phenotype, {"skewed", "constant"});
    put(writer, "/nothing", torch::full({rows}, std::nan("")), {"nothing"});
    put(writer, "/short", phenotype.narrow(0, 0, 100), {"skewed", "constant"});
    auto age = torch::randn({rows});
    put(writer, "/age", age, {"age"});
    age = age.clone();
    for (int64_t i = 20; i < 30; ++i) age[i] = std::nan("");
    put(writer, "/ages", torch::stack({age, torch::randn({rows})}, 1), {"age", "weight"});
    writer.finish();
  }
};

TEST_F(Association, FindsTheMarkerOnEachScale) {
  for (const std::string transform : {"none", "rank", "flow"}) {
    const auto outcome = run_well("associate mice.h5 --phenotype y:skewed --steps 50 --transform " + transform +
                                  " -o result.csv --relatedness visits.h5:/K");
    EXPECT_NE(outcome.output.find("159 of 160 have the phenotype"), std::string::npos) << outcome.output;
    EXPECT_NE(outcome.output.find("59 of 60"), std::string::npos) << outcome.output;
    if (transform == "none") continue;
    const auto table = outcome.output.substr(outcome.output.find("strongest"));
    const auto first = table.substr(table.find('\n') + 1);
    EXPECT_EQ(first.substr(first.find('c'), 3), "c7 ") << outcome.output;
  }
  std::ifstream stream(folder.path("result.csv"));
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  EXPECT_EQ(lines(text), 60u);
  EXPECT_TRUE(text.starts_with("marker,chromosome,position,frequency,")) << text.substr(0, 80);
}

TEST_F(Association, TakesAModelOfTrainAndWritesTables) {
  run_well("train mice.h5 --x /y --columns skewed --flow nsf --layers 1 --steps 20 --allow-missing -o model.h5");
  run_well("associate mice.h5 --phenotype y:0 --transform flow --model model.h5 --variances null -o result.h5");
  const auto table = read_table({folder.path("result.h5"), "/association", {}}, torch::kFloat64);
  EXPECT_EQ(table.values.size(0), 59);
  EXPECT_EQ(table.columns[0].name, "marker");
  EXPECT_EQ(table.values[3][0].item<double>(), 4);  // marker 3 is left out
}

TEST_F(Association, LeavesOutIndividualsWithoutTheCovariates) {
  const auto whole = run_well("associate mice.h5 --phenotype y:0 --covariates age");
  EXPECT_NE(whole.output.find("159 of 160 have the phenotype and the covariates"), std::string::npos) << whole.output;
  const auto outcome = run_well("associate mice.h5 --phenotype y:0 --covariates ages");
  EXPECT_NE(outcome.output.find("149 of 160 have the phenotype and the covariates"), std::string::npos)
      << outcome.output;
}

TEST_F(Association, SaysWhatIsWrong) {
  expect_refused("associate mice.h5 --phenotype y:0 --covariates nothing", "has a missing value for every individual");
  expect_refused("associate mice.h5 --phenotype y:0 --covariates y:constant", "the covariates are linearly dependent");
  expect_refused("associate mice.h5 --phenotype y:0 --covariates short", "--covariates: has 100 rows");
  expect_refused("associate mice.h5 --phenotype y:0 --relatedness visits.h5:/cut", "without its last columns");
  expect_refused("associate mice.h5 --phenotype y:0 --relatedness visits.h5:/holes", "entry (3, 50) is missing");
  expect_refused("associate mice.h5 --phenotype y:0 --relatedness visits.h5:/impossible", "it is no covariance");
  expect_refused(
      "associate mice.h5 --phenotype y:0 --relatedness visits.h5:/K --relatedness-rows visits.h5:/train/half",
      "expected whole numbers as places from 0 to 159");
  expect_refused("associate mice.h5", "--phenotype");
  expect_refused("associate mice.h5 --phenotype y", "y has 2 columns; choose one as y:COLUMN");
  expect_refused("associate mice.h5 --phenotype y:2", "no column 2");
  expect_refused("associate mice.h5 --phenotype none", "--phenotype: ");
  expect_refused("associate mice.h5 --phenotype nothing", "is missing for every individual");
  expect_refused("associate mice.h5 --phenotype y:constant", "is 2 for every individual");
  expect_refused("associate mice.h5 --phenotype short:0", "has 100 rows, but there are genotypes of 160 individuals");
  expect_refused("associate mice.h5 --phenotype y:0 --transform log", "--transform");
  expect_refused("associate mice.h5 --phenotype y:0 --relatedness visits.h5:/small", "is of 100 individuals");
  expect_refused("associate mice.h5 --phenotype y:0 --relatedness visits.h5:/wide", "expected a square relatedness");
  expect_refused("associate mice.h5 --phenotype y:0 --relatedness visits.h5:/skew", "must be symmetric");
  expect_refused("associate mice.h5 --phenotype y:0 --genotypes y", "is outside of [0, 2]");
  expect_refused("associate mice.h5 --phenotype y:0 --frequency 0.7", "between 0 and 0.5, got 0.7");
  expect_refused("associate mice.h5 --phenotype y:0 -o nowhere/result.csv", "there is no folder");
}

}  // namespace
}  // namespace diffeo::testing
