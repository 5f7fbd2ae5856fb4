#include "diffeo/trainers/schedule.h"

#include <gtest/gtest.h>

namespace diffeo::testing {
namespace {

TEST(Schedule, CosineIsThatOfPyTorch) {
  // torch 2.11, CosineAnnealingLR(SGD(lr=0.2), T_max=8): the rates of steps 0 to 7.
  const Schedule cosine({.learning_rate = 0.2, .total_steps = 8});
  const std::vector<double> want{0.2, 0.19238795325112867, 0.17071067811865475,  0.13826834323650898,
                                 0.1, 0.06173165676349103, 0.029289321881345268, 0.007612046748871327};
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(cosine.rate(i), want[i], 1e-15) << i;
  EXPECT_NEAR(cosine.rate(8), 0, 1e-17);
  EXPECT_NEAR(cosine.rate(100), 0, 1e-17);
}

TEST(Schedule, WarmUpIsLinearAndTheCosineBeginsAfterIt) {
  const Schedule schedule({.learning_rate = 1, .warmup_steps = 4, .total_steps = 12});
  for (int i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(schedule.rate(i), 0.25 * (i + 1));
  EXPECT_DOUBLE_EQ(schedule.rate(4), 1);
  EXPECT_NEAR(schedule.rate(8), 0.5, 1e-15);
  EXPECT_NEAR(schedule.rate(12), 0, 1e-15);
}

TEST(Schedule, CosineOfTimeWhereStepsAreNotKnown) {
  const Schedule schedule({.learning_rate = 1});
  EXPECT_DOUBLE_EQ(schedule.rate(1000, 0), 1);
  EXPECT_NEAR(schedule.rate(1000, 0.5), 0.5, 1e-15);
  EXPECT_NEAR(schedule.rate(1000, 1.5), 0, 1e-15);
}

TEST(Schedule, ConstantIsConstant) {
  Schedule schedule({.schedule = "constant", .learning_rate = 0.3, .total_steps = 5});
  schedule.evaluated(1);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(schedule.rate(i), 0.3);
}

TEST(Schedule, PlateauFallsToATenthWhenStuckAndSurvivesItsState) {
  Schedule schedule({.schedule = "plateau", .learning_rate = 1, .patience = 2});
  for (double loss : {3.0, 2.0, 2.5}) schedule.evaluated(loss);
  EXPECT_DOUBLE_EQ(schedule.rate(9), 1);
  Schedule again({.schedule = "plateau", .learning_rate = 1, .patience = 2});
  again.load(Json::parse(schedule.state().dump()));
  for (auto* one : {&schedule, &again}) {
    one->evaluated(2.0);  // the same is not better
    EXPECT_DOUBLE_EQ(one->rate(9), 0.1);
    one->evaluated(std::numeric_limits<double>::quiet_NaN());
    EXPECT_DOUBLE_EQ(one->rate(9), 0.1);
    one->evaluated(std::numeric_limits<double>::infinity());
    EXPECT_DOUBLE_EQ(one->rate(9), 0.01);
    one->evaluated(1.0);
    one->evaluated(1.5);
    EXPECT_DOUBLE_EQ(one->rate(9), 0.01);
  }
}

TEST(Schedule, SaysWhatIsWrong) {
  const auto message_of = [](const Schedule::Options& options) -> std::string {
    try {
      const Schedule schedule(options);
    } catch (const SpecError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message_of({.schedule = "cosin"}).find("schedule: "), 0u);
  EXPECT_EQ(message_of({.learning_rate = 0}), "learning_rate: must be above 0 and finite, got 0");
  EXPECT_EQ(message_of({.learning_rate = std::nan("")}), "learning_rate: must be above 0 and finite, got nan");
  EXPECT_EQ(message_of({.warmup_steps = -1}), "warmup_steps: must not be negative, got -1");
  EXPECT_EQ(message_of({.warmup_steps = 10, .total_steps = 10}),
            "warmup_steps: must be fewer than the 10 steps of the run, got 10");
}

}  // namespace
}  // namespace diffeo::testing
