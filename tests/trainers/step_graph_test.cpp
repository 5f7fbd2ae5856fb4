// A step that is recorded and repeated gives the numbers of one that is not, and whatever cannot be recorded runs as it
// always did.
#include "diffeo/trainers/step_graph.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "diffeo/layers/base/error.h"
#include "trainers/rows.h"

namespace diffeo::testing {
namespace {

/// Counts what it is asked for; a replay is the work done once more on what it reads.
class Pretended : public Recording {
 public:
  struct Counts {
    int rehearsed = 0, recorded = 0, replayed = 0;
  };
  explicit Pretended(Counts& counts) : counts_(counts) {}
  Tensor rehearse(const Work& work) override {
    ++counts_.rehearsed;
    return work();
  }
  void record(const Work& work) override {
    ++counts_.recorded;
    work_ = work;
  }
  Tensor replay() override {
    ++counts_.replayed;
    return work_();
  }

 private:
  Counts& counts_;
  Work work_;
};

Batch batch_of(int64_t rows, int number) {
  return {.x = torch::full({rows, 2}, number, torch::kDouble), .weight = torch::ones({rows}, torch::kDouble)};
}

class StepGraphs : public ::testing::Test {
 protected:
  StepGraph graph(std::function<Tensor(const Batch&)> compute) {
    return {std::make_unique<Pretended>(counts_),
            torch::kCPU,
            {.compute = std::move(compute),
             .undo = [this] { ++undone_; },
             .notice = [this](const std::string& sentence) { notices_.push_back(sentence); }}};
  }
  static Tensor sum_of(const Batch& batch) { return batch.x.sum(); }

  Pretended::Counts counts_;
  int undone_ = 0;
  std::vector<std::string> notices_;
};

TEST_F(StepGraphs, ReplaysWhatItHasRehearsed) {
  auto step = graph(sum_of);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(step(batch_of(3, i)).item<double>(), 6 * i) << i;
  EXPECT_EQ(counts_.rehearsed, 3);
  EXPECT_EQ(counts_.recorded, 1);
  EXPECT_EQ(counts_.replayed, 7);
  EXPECT_TRUE(notices_.empty());
}

TEST_F(StepGraphs, ComputesBatchesOfAnotherShapePlainly) {
  auto step = graph(sum_of);
  // A resumed run may begin with the short last batch of an epoch: it is not what will come again and again.
  EXPECT_EQ(step(batch_of(2, 5)).item<double>(), 20);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(step(batch_of(3, i)).item<double>(), 6 * i) << i;
  EXPECT_EQ(counts_.replayed, 5);
  EXPECT_EQ(step(batch_of(2, 7)).item<double>(), 28);
  auto without_weight = batch_of(3, 1);
  without_weight.weight = Tensor();
  EXPECT_EQ(step(without_weight).item<double>(), 6);
  EXPECT_EQ(counts_.replayed, 5);
  EXPECT_EQ(step(batch_of(3, 2)).item<double>(), 12);
  EXPECT_EQ(counts_.replayed, 6);
}

TEST_F(StepGraphs, LeavesRandomLossesAlone) {
  const auto noisy = [](const Batch& batch) { return (batch.x + torch::randn_like(batch.x)).sum(); };
  auto step = graph(noisy);
  torch::manual_seed(3);
  std::vector<double> got, want;
  for (int i = 0; i < 6; ++i) got.push_back(step(batch_of(3, i)).item<double>());
  torch::manual_seed(3);
  for (int i = 0; i < 6; ++i) want.push_back(noisy(batch_of(3, i)).item<double>());
  EXPECT_EQ(got, want);
  EXPECT_EQ(counts_.recorded, 0);
  EXPECT_EQ(notices_, std::vector<std::string>{"steps run without a CUDA graph: the loss draws random numbers"});
}

TEST_F(StepGraphs, ComputesPlainlyWhereRecordingFails) {
  for (const int fails : {0, 2, 3}) {
    SCOPED_TRACE(c10::str("in call ", fails));
    undone_ = 0;
    notices_.clear();
    int calls = 0;
    auto step = graph([&](const Batch& batch) -> Tensor {
      const auto noise = calls == fails ? torch::rand({}) : torch::zeros({});
      if (calls++ == fails) throw Error("the host waits\nfor the device");
      return batch.x.sum() + noise;
    });
    torch::manual_seed(4);
    const auto next = torch::rand({}).item<double>();
    torch::manual_seed(4);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(step(batch_of(3, i)).item<double>(), 6 * i) << i;
    EXPECT_EQ(undone_, 1);
    EXPECT_EQ(notices_, std::vector<std::string>{"steps run without a CUDA graph: the host waits"});
    EXPECT_EQ(torch::rand({}).item<double>(), next) << "what was drawn in vain is drawn again";
  }
}

FitOptions short_run(const std::string& graph) {
  return {
      .batch_size = 64, .epochs = 6, .learning_rate = 1e-2, .clip_norm = 1, .average = 0.9, .graph = graph, .seed = 5};
}

NamedTensors trained(const std::string& graph, torch::Device device, std::vector<std::string>& notices) {
  const Rows rows({.x = moons(300, 5, torch::kFloat64)});
  const auto flow = small_flow(2, 5);
  flow->to(torch::kFloat64);
  flow->to(device);
  MaximumLikelihood objective(flow);
  FitHooks hooks;
  hooks.notice = [&](const std::string& sentence) { notices.push_back(sentence); };
  fit(objective, rows, &rows, short_run(graph), hooks);
  return named_state(objective);
}

TEST(StepGraphInFit, AutoIsOffOnTheCpu) {
  std::vector<std::string> notices;
  EXPECT_TRUE(same_bits(trained("auto", torch::kCPU, notices), trained("off", torch::kCPU, notices)));
  EXPECT_TRUE(notices.empty());
}

TEST(StepGraphInFit, SaysWhatIsWrong) {
  std::vector<std::string> notices;
  const auto message_of = [&](const std::string& graph) -> std::string {
    try {
      trained(graph, torch::kCPU, notices);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(message_of("on").find("set graph to auto or off"), std::string::npos) << message_of("on");
  EXPECT_NE(message_of("maybe").find("graph"), std::string::npos) << message_of("maybe");
}

TEST(StepGraphInFit, RunsOnTheGpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "needs a GPU and a build with DIFFEO_CUDA";
  std::vector<std::string> notices;
  const auto got = trained("on", torch::kCUDA, notices), want = trained("off", torch::kCUDA, notices);
  EXPECT_TRUE(notices.empty()) << notices[0];
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_TRUE(got[i].second.cpu().equal(want[i].second.cpu()))
        << want[i].first << ": the largest difference is "
        << (got[i].second - want[i].second).abs().max().item<double>();
}

}  // namespace
}  // namespace diffeo::testing
