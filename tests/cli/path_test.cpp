// The whole path of a user: toy data, training, evaluation, samples, inspection, pictures.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "cli/program.h"
#include "diffeo/flows/model.h"

namespace diffeo::testing {
namespace {

/// A trained flow on the two moons, made once for all tests of this file.
class Path : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder = new Folder;
    made = folder->run("toy moons -n 4000 moons.h5 --seed 3");
    trained = folder->run(
        "train moons.h5 --flow nsf --layers 2 --width 16 --depth 1 --steps 120 --batch-size 128 --evaluate-every 30 "
        "--learning-rate 5e-3 --seed 1 --threads 1 -o model.h5 --log run.jsonl");
  }
  static void TearDownTestSuite() { delete folder; }

  static Tensor values(const std::string& file, const std::string& object) {
    return read_table({folder->path(file), object, {}}, torch::kFloat64).values;
  }
  static void expect_picture(const std::string& arguments, const std::string& file, const std::string& begins_with) {
    SCOPED_TRACE(arguments);
    const auto outcome = folder->run("plot " + arguments + " -o " + file);
    ASSERT_EQ(outcome.code, 0) << ::testing::PrintToString(outcome);
    std::ifstream stream(folder->path(file), std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(stream), {}};
    EXPECT_EQ(content.substr(0, begins_with.size()), begins_with);
    EXPECT_GT(content.size(), 3000u);
  }

  static Folder* folder;
  static Outcome made, trained;
};
Folder* Path::folder = nullptr;
Outcome Path::made, Path::trained;

TEST_F(Path, ToyWritesSplits) {
  ASSERT_EQ(made.code, 0) << ::testing::PrintToString(made);
  int64_t rows = 0;
  for (const auto* split : {"/train/x", "/valid/x", "/test/x"}) {
    const auto x = values("moons.h5", split);
    EXPECT_EQ(x.size(1), 2);
    rows += x.size(0);
  }
  EXPECT_EQ(rows, 4000);
}

TEST_F(Path, TrainingLearnsAndSaysSo) {
  ASSERT_EQ(trained.code, 0) << ::testing::PrintToString(trained);
  EXPECT_EQ(trained.errors, "");
  for (const auto* words :
       {"data ", "flow ", "training ", "step 120 of 120", "test log-likelihood", "model     model.h5"})
    EXPECT_NE(trained.output.find(words), std::string::npos) << words << " is not in\n" << trained.output;
  const auto model = read_model(folder->path("model.h5"));
  EXPECT_TRUE(model.metadata.at("finished").get<bool>());
  EXPECT_EQ(model.history.size(), 4u);
  EXPECT_LT(model.history.back()["valid_loss"].get<double>(), model.history.front()["valid_loss"].get<double>());
  // The flow's front is standardisation: its likelihoods are in the data's own units.
  EXPECT_EQ(model.spec["layers"][0]["type"], "standardize");
}

TEST_F(Path, TheLogIsJsonLines) {
  std::ifstream stream(folder->path("run.jsonl"));
  std::vector<std::string> events;
  for (std::string line; std::getline(stream, line);)
    events.push_back(Json::parse(line).at("event").get<std::string>());
  EXPECT_EQ(events,
            (std::vector<std::string>{"start", "evaluation", "evaluation", "evaluation", "evaluation", "end", "test"}));
}

TEST_F(Path, EvaluateWritesWhatTheLibraryComputes) {
  const auto outcome = folder->run("evaluate model.h5 moons.h5 -o log-prob.h5");
  ASSERT_EQ(outcome.code, 0) << ::testing::PrintToString(outcome);
  const auto flow = load_flow(folder->path("model.h5"));
  torch::NoGradGuard no_grad;
  const auto expected = flow->log_prob(values("moons.h5", "/test/x").to(torch::kFloat32)).to(torch::kFloat64);
  const auto written = values("log-prob.h5", "/log_prob").flatten();
  ASSERT_EQ(written.sizes(), expected.sizes());
  EXPECT_LT((written - expected).abs().max().item<double>(), 1e-4);
  // The figures that are printed are those of the file.
  std::istringstream words(outcome.output.substr(outcome.output.find("log-likelihood") + 14));
  double mean = 0, error = 0;
  std::string sign;
  words >> mean >> sign >> error;
  EXPECT_NEAR(mean, written.mean().item<double>(), 1e-5);
  EXPECT_NEAR(error, written.std().item<double>() / std::sqrt(written.numel()), 1e-2 * error);
  std::istringstream bits(outcome.output.substr(outcome.output.find("bits per dimension") + 18));
  double value = 0;
  bits >> value;
  EXPECT_NEAR(value, -mean / (2 * std::log(2.0)), 1e-4);
}

TEST_F(Path, EvaluateFindsTheRowsOfASplit) {
  const auto stored = folder->run("evaluate model.h5 moons.h5"),
             named = folder->run("evaluate model.h5 moons.h5 --split test");
  ASSERT_EQ(named.code, 0) << ::testing::PrintToString(named);
  const auto figures = [](const Outcome& outcome) {
    return outcome.output.substr(outcome.output.find("log-likelihood"));
  };
  EXPECT_EQ(figures(stored), figures(named));
  const auto valid = folder->run("evaluate model.h5 moons.h5 --x /valid/x"),
             also_valid = folder->run("evaluate model.h5 moons.h5 --split valid");
  EXPECT_EQ(figures(valid), figures(also_valid));
  EXPECT_NE(figures(valid), figures(named));
  const auto paths = folder->run("evaluate model.h5 moons.h5 --paths 3");
  EXPECT_EQ(paths.code, 2);
  EXPECT_NE(paths.errors.find("--paths: model.h5 holds a flow without random layers"), std::string::npos)
      << paths.errors;
}

TEST_F(Path, SamplesAreRepeatableAndCarryTheColumns) {
  ASSERT_EQ(folder->run("sample model.h5 -n 2000 -o a.h5 --seed 5").code, 0);
  ASSERT_EQ(folder->run("sample model.h5 -n 2e3 -o b.h5 --seed 5").code, 0);
  ASSERT_EQ(folder->run("sample model.h5 -n 2000 -o c.h5 --seed 6").code, 0);
  const auto a = values("a.h5", "/x");
  EXPECT_EQ(a.sizes(), (std::vector<int64_t>{2000, 2}));
  EXPECT_TRUE(a.isfinite().all().item<bool>());
  EXPECT_TRUE(a.equal(values("b.h5", "/x")));
  EXPECT_FALSE(a.equal(values("c.h5", "/x")));
  const auto columns = table_info({folder->path("a.h5"), "/x", {}}).columns;
  EXPECT_EQ(columns, table_info({folder->path("moons.h5"), "/train/x", {}}).columns);
  // A weak check that samples are like the data: their means agree within a tenth of the spread.
  const auto data = values("moons.h5", "/train/x");
  EXPECT_LT(((a.mean(0) - data.mean(0)) / data.std(0)).abs().max().item<double>(), 0.2);
}

TEST_F(Path, InspectDescribesDataAndModels) {
  const auto data = folder->run("inspect moons.h5");
  ASSERT_EQ(data.code, 0) << ::testing::PrintToString(data);
  for (const auto* words : {"3 tables", "/train/x: 3 200 rows x 2 columns", "histogram", "█"})
    EXPECT_NE(data.output.find(words), std::string::npos) << words << " is not in\n" << data.output;
  const auto model = folder->run("inspect model.h5");
  ASSERT_EQ(model.code, 0) << ::testing::PrintToString(model);
  for (const auto* words : {"parameters in", "standardize", "coupling", "base", "training: 4 evaluations in 120 steps"})
    EXPECT_NE(model.output.find(words), std::string::npos) << words << " is not in\n" << model.output;
}

TEST_F(Path, PicturesAreDrawnInEveryFormat) {
  if (std::system("gnuplot --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "gnuplot is not installed";
  ASSERT_EQ(folder->run("sample model.h5 -n 2000 -o samples.h5").code, 0);
  ASSERT_EQ(folder->run("evaluate model.h5 moons.h5 -o loglik.h5").code, 0);
  expect_picture("corner moons.h5 samples.h5", "corner.png", "\x89PNG");
  expect_picture("density model.h5", "density.png", "\x89PNG");
  expect_picture("history model.h5", "history.svg", "<?xml");
  expect_picture("loglik loglik.h5", "loglik.pdf", "%PDF");
}

TEST_F(Path, PlotWithoutGnuplotSaysWhatToInstall) {
  const Folder other;
  std::filesystem::copy(folder->path("model.h5"), other.path("model.h5"));
  const std::string path = getenv("PATH");
  setenv("PATH", "/nonexistent", 1);
  const auto outcome = other.run("plot history model.h5 -o history.png");
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.errors.find("apt install gnuplot-nox"), std::string::npos) << outcome.errors;
  EXPECT_EQ(other.files(), std::vector<std::string>{"model.h5"});
}

TEST_F(Path, TrainingIsTheSameTwice) {
  const std::string train =
      "train moons.h5 --flow nsf --layers 2 --width 8 --depth 1 --steps 10 --seed 4 --threads 1 -o ";
  ASSERT_EQ(folder->run(train + "first.h5").code, 0);
  ASSERT_EQ(folder->run(train + "second.h5").code, 0);
  const auto first = read_model(folder->path("first.h5")), second = read_model(folder->path("second.h5"));
  ASSERT_EQ(first.state.size(), second.state.size());
  for (size_t i = 0; i < first.state.size(); ++i)
    EXPECT_TRUE(first.state[i].second.equal(second.state[i].second)) << first.state[i].first;
}

TEST(Context, FlowsOfAContextTrainEvaluateAndSample) {
  const Folder folder;
  std::string csv = "x,y,c\n";
  for (int i = 0; i < 600; ++i) csv += c10::str(std::sin(i * 0.7) + i % 3, ",", std::cos(i * 1.3), ",", i % 3, ".5\n");
  folder.write("rows.csv", csv);
  ASSERT_EQ(folder.run("convert rows.csv rows.h5").code, 0);
  const auto trained = folder.run(
      "train rows.h5 --columns x,y --context c --flow nsf --layers 2 --width 8 --depth 1 --steps 20 -o model.h5");
  ASSERT_EQ(trained.code, 0) << ::testing::PrintToString(trained);
  const auto evaluated = folder.run("evaluate model.h5 rows.h5");
  ASSERT_EQ(evaluated.code, 0) << ::testing::PrintToString(evaluated);
  EXPECT_NE(evaluated.output.find("600 rows x 2 columns"), std::string::npos) << evaluated.output;
  EXPECT_EQ(folder.run("sample model.h5 -n 7 -o one.h5 --context-row 1.5").code, 0);
  const auto many = folder.run("sample model.h5 -n 2 -o many.h5 --context rows.h5");
  ASSERT_EQ(many.code, 0) << ::testing::PrintToString(many);
  const auto read = [&](const std::string& object) {
    return read_table({folder.path("many.h5"), object, {}}, torch::kFloat64).values;
  };
  EXPECT_EQ(read("/x").sizes(), (std::vector<int64_t>{1200, 2}));
  const auto context = read_table({folder.path("rows.h5"), "", {"c"}}, torch::kFloat64).values;
  EXPECT_TRUE(read("/context").equal(context.repeat_interleave(2, 0)));
  // What a model with a context cannot do without one, or with a wrong one.
  const auto without = folder.run("sample model.h5 -n 7 -o none.h5");
  EXPECT_EQ(without.code, 2);
  EXPECT_NE(without.errors.find("needs a context of 1 values (c)"), std::string::npos) << without.errors;
  EXPECT_EQ(folder.run("sample model.h5 -n 7 -o none.h5 --context-row 1,2").code, 2);
}

TEST(Dequantise, IntegerColumnsWarnOrAreDequantised) {
  const Folder folder;
  std::string csv = "x,rings\n";
  for (int i = 0; i < 400; ++i) csv += c10::str(std::sin(i * 0.7), ",", (i * i) % 7, "\n");
  folder.write("rows.csv", csv);
  ASSERT_EQ(folder.run("convert rows.csv rows.h5").code, 0);
  const std::string train = "train rows.h5 --flow nsf --layers 2 --width 8 --depth 1 --steps 10 -o ";
  const auto plain = folder.run(train + "plain.h5");
  EXPECT_EQ(plain.code, 0);
  EXPECT_NE(plain.errors.find("'rings' holds whole numbers only"), std::string::npos) << plain.errors;
  const auto noisy = folder.run(train + "noisy.h5 --dequantize rings");
  EXPECT_EQ(noisy.code, 0) << ::testing::PrintToString(noisy);
  EXPECT_EQ(noisy.errors, "");
  ASSERT_EQ(folder.run("sample noisy.h5 -n 100 -o samples.h5").code, 0);
  const auto samples = read_table({folder.path("samples.h5"), "/x", {}}, torch::kFloat64).values;
  EXPECT_TRUE(samples.select(1, 1).eq(samples.select(1, 1).floor()).all().item<bool>());
  EXPECT_FALSE(samples.select(1, 0).eq(samples.select(1, 0).floor()).all().item<bool>());
}

}  // namespace
}  // namespace diffeo::testing
