// Toy densities: the same seed gives the same points, and each has the support and moments it is known for.
#include "diffeo/data/toy.h"

#include <gtest/gtest.h>

#include "data/scratch.h"

namespace diffeo::testing {
namespace {

TEST(Toy, PointsDependOnTheSeedOnly) {
  for (const auto& name : toy_names()) {
    SCOPED_TRACE(name);
    const auto points = toy(name, 1000, 7);
    EXPECT_EQ(points.sizes(), (std::vector<int64_t>{1000, 2}));
    torch::manual_seed(99);
    EXPECT_TRUE(torch::equal(points, toy(name, 1000, 7)));
    EXPECT_FALSE(torch::equal(points, toy(name, 1000, 8)));
    EXPECT_TRUE(torch::equal(points, toy(name, 1000, 7, torch::kFloat64).to(torch::kFloat32)));
    EXPECT_TRUE(torch::isfinite(points).all().item<bool>());
    EXPECT_LT(points.abs().max().item<float>(), 6);
    EXPECT_GT(points.std(0).min().item<float>(), 0.5);
    EXPECT_EQ(toy(name, 0, 1).sizes(), (std::vector<int64_t>{0, 2}));
  }
  EXPECT_ERROR(toy("mons", 1, 1), "unknown density 'mons'; did you mean 'moons'?");
  EXPECT_ERROR(toy("moons", -1, 1), "at least 0, got -1");
}

TEST(Toy, SupportsAreTheKnownOnes) {
  const auto board = toy("checkerboard", 20000, 1, torch::kFloat64);
  const auto cell = (board / 2).floor().sum(1).remainder(2);
  EXPECT_EQ(cell.sum().item<double>(), 0);  // only every other square
  EXPECT_LE(board.abs().max().item<double>(), 4);

  const auto radius = toy("circles", 20000, 1, torch::kFloat64).norm(2, {1});
  const auto nearest = torch::minimum((radius - 1.5).abs(), (radius - 3).abs());
  EXPECT_LT(nearest.max().item<double>(), 1.5);
  EXPECT_NEAR((radius < 2.25).to(torch::kFloat64).mean().item<double>(), 0.5, 0.02);

  const auto modes = toy("8gaussians", 20000, 1, torch::kFloat64);
  EXPECT_NEAR(modes.square().sum(1).mean().item<double>(), 8 + 0.25, 0.1);  // 4^2 / 2 + 2 (1/2)^2 / 2
}

}  // namespace
}  // namespace diffeo::testing
