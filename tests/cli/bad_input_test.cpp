// Bad files: each one costs exit code 2 and one line that names file, object and reason. Nothing is written.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <fstream>

#include "cli/program.h"
#include "diffeo/data/table.h"

namespace diffeo::testing {
namespace {

void write_table(const std::string& file, const std::string& object, const Tensor& rows,
                 const std::vector<std::string>& names) {
  std::vector<Column> columns;
  for (const auto& name : names) columns.push_back({.name = name, .unit = "", .discrete = false});
  TableWriter writer(file);
  writer.begin(object, columns, torch::kFloat32);
  writer.append(rows);
  writer.finish();
}

/// Good rows, a small model, and a folder for bad ones.
class BadInput : public ::testing::Test {
 protected:
  void SetUp() override {
    torch::manual_seed(7);
    good = torch::randn({200, 3});
    write_table(folder.path("good.h5"), "/x", good, {"a", "b", "c"});
    // A model in place, and an old output that has to survive.
    const auto trained = folder.run("train good.h5 --flow nsf --layers 1 --width 4 --depth 1 --steps 2 -o model.h5");
    ASSERT_EQ(trained.code, 0) << ::testing::PrintToString(trained);
    folder.write("old.h5", "precious");
  }

  void expect_refused(const std::string& arguments, const std::vector<std::string>& words) {
    SCOPED_TRACE("diffeo " + arguments);
    const auto before = folder.files();
    const auto outcome = folder.run(arguments);
    EXPECT_EQ(outcome.code, 2) << ::testing::PrintToString(outcome);
    EXPECT_EQ(lines(outcome.errors), 1u) << outcome.errors;
    const auto who = "diffeo " + arguments.substr(0, arguments.find(' ')) + ": ";
    EXPECT_TRUE(outcome.errors.starts_with(who)) << outcome.errors;
    for (const auto& word : words)
      EXPECT_NE(outcome.errors.find(word), std::string::npos) << "'" << word << "' is not in: " << outcome.errors;
    EXPECT_EQ(folder.files(), before) << "something was written";
    std::ifstream stream(folder.path("old.h5"));
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(stream), {}), "precious") << "an old file was overwritten";
  }
  /// The same for all that read a table.
  void expect_refused_everywhere(const std::string& file, const std::vector<std::string>& words) {
    expect_refused("train " + file + " --flow nsf --steps 2 -o old.h5", words);
    expect_refused("evaluate model.h5 " + file + " -o old.h5", words);
    expect_refused("plot corner " + file + " -o picture.png", words);
  }

  const Folder folder;
  Tensor good;
};

TEST_F(BadInput, FilesThatAreNotThere) {
  expect_refused_everywhere("absent.h5", {"absent.h5"});
  expect_refused("inspect absent.h5", {"absent.h5"});
  expect_refused("evaluate absent.h5 good.h5", {"absent.h5"});
  expect_refused("sample absent.h5 -n 10 -o old.h5", {"absent.h5"});
  expect_refused("convert absent.csv old.h5", {"absent.csv"});
}

TEST_F(BadInput, FilesThatAreNoHdf5) {
  folder.write("text.h5", "a,b\n1,2\n");
  folder.write("empty.h5", "");
  expect_refused_everywhere("text.h5", {"text.h5"});
  expect_refused_everywhere("empty.h5", {"empty.h5"});
  expect_refused("inspect text.h5", {"text.h5"});
  expect_refused("sample text.h5 -n 10 -o old.h5", {"text.h5"});
}

TEST_F(BadInput, TruncatedFiles) {
  for (const auto* name : {"good.h5", "model.h5"}) {
    std::ifstream stream(folder.path(name), std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(stream), {}};
    for (const double share : {0.02, 0.5, 0.97})
      folder.write(c10::str("cut-", share, name), content.substr(0, static_cast<size_t>(share * content.size())));
  }
  for (const auto* share : {"0.02", "0.5", "0.97"}) {
    const auto table = c10::str("cut-", share, "good.h5"), model = c10::str("cut-", share, "model.h5");
    expect_refused_everywhere(table, {table});
    expect_refused("evaluate " + model + " good.h5 -o old.h5", {model});
    expect_refused("sample " + model + " -n 10 -o old.h5", {model});
  }
}

TEST_F(BadInput, ObjectsAndColumnsThatAreNotThere) {
  expect_refused("train good.h5 --x /rows --flow nsf --steps 2 -o old.h5", {"good.h5", "/rows"});
  expect_refused("train good.h5 --columns a,d --flow nsf --steps 2 -o old.h5", {"good.h5", "'d'"});
  expect_refused("train good.h5 --columns a,b --context d --flow nsf --steps 2 -o old.h5", {"good.h5", "'d'"});
  expect_refused("evaluate model.h5 good.h5 --x /rows -o old.h5", {"good.h5", "/rows"});
  expect_refused("evaluate model.h5 good.h5 --split prod", {"unknown value 'prod'", "train, valid, test"});
  expect_refused("inspect good.h5 --object /rows", {"good.h5", "/rows"});
  expect_refused("plot corner good.h5 --columns a,d -o picture.png", {"good.h5", "'d'"});
  write_table(folder.path("other.h5"), "/x", good.slice(1, 0, 2), {"a", "b"});
  expect_refused("evaluate model.h5 other.h5 -o old.h5", {"other.h5", "'c'"});
}

TEST_F(BadInput, MissingValuesAreNamedByRowAndColumn) {
  for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    SCOPED_TRACE(value);
    auto rows = good.clone();
    rows[17][1] = value;
    write_table(folder.path("missing.h5"), "/x", rows, {"a", "b", "c"});
    expect_refused_everywhere("missing.h5", {"missing.h5", "/x", "row 17", "'b'"});
  }
  // Inspection counts them instead.
  const auto outcome = folder.run("inspect missing.h5");
  EXPECT_EQ(outcome.code, 0);
  const auto row = outcome.output.substr(outcome.output.find("\n  b "));
  EXPECT_NE(row.substr(0, row.find('\n', 1)).find(" 1 "), std::string::npos) << outcome.output;
  // And training can leave such rows out.
  const auto trained = folder.run(
      "train missing.h5 --allow-missing --flow nsf --layers 1 --width 4 --depth 1 --steps 2 -o other-model.h5");
  EXPECT_EQ(trained.code, 0) << ::testing::PrintToString(trained);
  EXPECT_NE(trained.errors.find("1 of 200 rows"), std::string::npos) << trained.errors;
}

TEST_F(BadInput, TextIsNoTable) {
  folder.write("text.csv", "a,b\n1,2\n3,four\n");
  expect_refused("convert text.csv old.h5", {"text.csv", "four"});
  folder.write("ragged.csv", "a,b\n1,2\n3\n");
  expect_refused("convert ragged.csv old.h5", {"ragged.csv", "3"});
}

TEST_F(BadInput, OutputsThatCannotBeWritten) {
  expect_refused("train good.h5 --flow nsf --steps 2 -o no/such/folder/model.h5",
                 {"no/such/folder/model.h5", "there is no folder"});
  expect_refused("evaluate model.h5 good.h5 -o no/such/folder/out.h5", {"no/such/folder/out.h5"});
  expect_refused("sample model.h5 -n 10 -o no/such/folder/out.h5", {"no/such/folder/out.h5"});
  expect_refused("plot history model.h5 -o no/such/folder/out.png", {"no/such/folder/out.png"});
  expect_refused("plot history model.h5 -o picture.jpeg", {"picture.jpeg", ".png, .svg or .pdf"});
  expect_refused("train good.h5 --flow nsf --steps 2 -o model-2.h5 --log no/such/folder/run.jsonl",
                 {"no/such/folder/run.jsonl"});
}

TEST_F(BadInput, OutputsThatDoNotFit) {
  // A limit on the size of files stands for a full disk.
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {.rlim_cur = 100000, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  expect_refused("sample model.h5 -n 1e6 -o samples.h5", {"samples.h5", "File too large"});
  setrlimit(RLIMIT_FSIZE, &before);
}

TEST_F(BadInput, OptionsThatMakeNoSense) {
  const std::string train = "train good.h5 -o old.h5 --steps 2 ";
  expect_refused(train + "--flow nfs", {"unknown", "'nfs'", "did you mean 'nsf'?"});
  expect_refused(train + "--flow nsf --optimizer adma", {"'adma'", "did you mean 'adam'?"});
  expect_refused(train + "--flow nsf --memory none", {"memory", "'none'", "normal, checkpoint, constant"});
  expect_refused(train + "--flow nsf --batch-size 0", {"batch_size", "got 0"});
  expect_refused(train + "--flow nsf --preprocess whiten", {"preprocess", "'whiten'", "standardize, minmax, robust, "});
  expect_refused(train + "--flow nsf --whiten after", {"whiten", "dense_linear"});
  expect_refused(train + "--flow ebflow --whiten sometimes", {"--whiten", "'sometimes'", "before, after, both, never"});
  expect_refused(train + "--flow nsf --transform a", {"transform", "COLUMN=log"});
  expect_refused(train + "--flow nsf --transform d=log", {"transform", "no column 'd'"});
  expect_refused(train + "--flow nsf --transform a=log", {"transform", "a=log needs values above 0"});
  expect_refused(train + "--flow nsf --spec flow.json", {"--flow and --spec"});
  expect_refused(train + "--spec flow.json --bins 4", {"--bins", "--spec"});
  expect_refused(train + "--spec absent.json", {"absent.json", "No such file"});
  folder.write(
      "flow.json",
      R"({"type": "flow", "layers": [{"type": "coupling", "features": 3, "hiden": 4}], "base": {"type": "normal", "features": 3}})");
  expect_refused(train + "--spec flow.json", {"flow.json", "layers/0", "unknown key 'hiden'"});
  folder.write(
      "flow.json",
      R"({"type": "flow", "layers": [{"type": "coupling", "features": 4}], "base": {"type": "normal", "features": 4}})");
  expect_refused(train + "--spec flow.json", {"flow.json", "4", "3"});
  expect_refused("sample model.h5 -n 0 -o old.h5", {"-n", "got 0"});
  expect_refused("sample model.h5 -n 10 -o old.h5 --context-row 1", {"takes no context"});
  expect_refused("plot density model.h5 -o picture.png", {"model.h5", "has 3 columns"});
}

TEST_F(BadInput, ADataFileIsNoModelAndTheReverse) {
  expect_refused("sample good.h5 -n 10 -o old.h5", {"good.h5"});
  expect_refused("evaluate good.h5 model.h5 -o old.h5", {"good.h5"});
  expect_refused("plot history good.h5 -o picture.png", {"good.h5"});
}

}  // namespace
}  // namespace diffeo::testing
