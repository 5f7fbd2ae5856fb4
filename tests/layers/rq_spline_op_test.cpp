// The fused spline against its definition in plain tensors: values, gradients and gradients of gradients, for every
// kind of tails, both directions, many numbers of bins and every instruction set of this machine.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <numbers>

#include "diffeo/layers/base/cpu_capability.h"
#include "diffeo/layers/base/error.h"
#include "diffeo/layers/rq_spline/rq_spline_op.h"

namespace diffeo::rq_spline {
namespace {

using torch::Tensor;

Shape shape_of(Tails tails, int64_t bins) {
  const double pi = std::numbers::pi;
  if (tails == Tails::circular) return {bins, tails, -pi, pi, -pi, pi, 1e-3, 1e-3, 1e-3};
  if (tails == Tails::none) return {bins, tails, -3, 2, -1, 1, 1e-3, 1e-3, 1e-3};
  return {bins, tails, -3, 3, -3, 3, 1e-3, 1e-3, 1e-3, 1.7};  // a temperature of its own
}

const char* name_of(Tails tails) {
  return tails == Tails::linear ? "linear" : tails == Tails::none ? "none" : "circular";
}

using Map = std::tuple<Tensor, Tensor> (*)(const Tensor&, const Tensor&, const Shape&, bool);

struct Result {
  std::vector<Tensor> tensors;
  static constexpr const char* names[] = {"value", "log_det", "by_x", "by_parameters"};
};

/// A scalar that no output leaves out and that is not linear in any.
Tensor loss_of(const Tensor& value, const Tensor& log_det) {
  return value.sin().sum() + (log_det * log_det.cos()).sum();
}

Result differentiated(Map map, Tensor x, Tensor parameters, const Shape& shape, bool inverse) {
  x = x.detach().requires_grad_();
  parameters = parameters.detach().requires_grad_();
  const auto [value, log_det] = map(x, parameters, shape, inverse);
  const auto grads = torch::autograd::grad({loss_of(value, log_det)}, {x, parameters});
  return {{value.detach(), log_det.detach(), grads[0], grads[1]}};
}

void expect_near(const Tensor& got, const Tensor& want, double tolerance, const std::string& what) {
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  ASSERT_EQ(got.scalar_type(), want.scalar_type()) << what;
  if (got.numel() == 0) return;
  const auto error = ((got - want).abs() / (1 + want.abs())).max().item<double>();
  EXPECT_LE(error, tolerance) << what;
}

class RqSplineOp : public ::testing::TestWithParam<CpuCapability> {
 protected:
  CpuCapabilityGuard guard{GetParam()};
};

TEST_P(RqSplineOp, MatchesTheReference) {
  torch::manual_seed(7);
  const std::vector<std::vector<int64_t>> batches{{}, {0}, {3, 4}, {17}};  // 0, 3, 36 and 51 elements
  for (const auto tails : {Tails::linear, Tails::none, Tails::circular})
    for (const int64_t bins : {1, 2, 3, 4, 8, 10, 16, 17, 64})
      for (const bool inverse : {false, true})
        for (const auto& batch : batches) {
          if (bins > 10 && batch.size() != 1) continue;
          const auto shape = shape_of(tails, bins);
          auto sizes = batch;
          sizes.push_back(3);
          const auto x = (1.5 * torch::randn(sizes, torch::kDouble)).clamp(-2.9, 2.9);
          sizes.push_back(shape.parameters());
          const auto parameters = torch::randn(sizes, torch::kDouble);
          const auto point = tails == Tails::none ? (inverse ? x / 3 : x.clamp(-2.9, 1.9)) : 1.2 * x;  // some outside
          const auto want = differentiated(reference, point, parameters, shape, inverse);
          const auto got = differentiated(apply, point, parameters, shape, inverse);
          for (size_t i = 0; i < 4; ++i) {
            const auto what = c10::str(Result::names[i], ", tails ", name_of(tails), ", bins ", bins, ", inverse ",
                                       inverse, ", batch ", batch, ", seed 7");
            expect_near(got.tensors[i], want.tensors[i], 1e-10, what);
          }
        }
}

TEST_P(RqSplineOp, SizesAroundThoseOfARegister) {
  torch::manual_seed(10);
  const auto shape = shape_of(Tails::linear, 8);
  for (int64_t rows = 1; rows <= 34; ++rows) {
    const auto x = torch::randn({rows, 1}, torch::kDouble),
               raw = torch::randn({rows, 1, shape.parameters()}, torch::kDouble);
    for (const bool single : {false, true}) {
      const auto type = single ? torch::kFloat : torch::kDouble;
      const auto got = differentiated(apply, x.to(type), raw.to(type), shape, false);
      const auto want = differentiated(reference, x, raw, shape, false);
      for (size_t i = 0; i < 4; ++i)
        expect_near(got.tensors[i].to(torch::kDouble), want.tensors[i], single ? 1e-3 : 1e-10,
                    c10::str(Result::names[i], ", ", rows, " rows, seed 10"));
    }
  }
}

TEST_P(RqSplineOp, InFloat32ItIsAsNearToTheTruthAsTheReference) {
  // What float32 can do depends on the slopes that random parameters make; so the reference in float32 is the measure.
  torch::manual_seed(1);
  const auto errors = [](const Result& got, const Result& truth, size_t i) {
    return (got.tensors[i].to(torch::kDouble) - truth.tensors[i]).abs() / (1 + truth.tensors[i].abs());
  };
  for (const auto tails : {Tails::linear, Tails::none, Tails::circular})
    for (const int64_t bins : {1, 8, 16})
      for (const bool inverse : {false, true}) {
        const auto shape = shape_of(tails, bins);
        const auto x = 0.99f * (2 * torch::rand({1500, 2}) - 1), raw = torch::randn({1500, 2, shape.parameters()});
        const auto truth = differentiated(reference, x.to(torch::kDouble), raw.to(torch::kDouble), shape, inverse);
        const auto got = differentiated(apply, x, raw, shape, inverse),
                   measure = differentiated(reference, x, raw, shape, inverse);
        for (size_t i = 0; i < 4; ++i) {
          SCOPED_TRACE(c10::str(Result::names[i], ", tails ", name_of(tails), ", bins ", bins, ", inverse ", inverse,
                                ", seed 1"));
          const auto mine = errors(got, truth, i), theirs = errors(measure, truth, i);
          EXPECT_LE(mine.mean().item<double>(), 3 * theirs.mean().item<double>() + 1e-7);
          EXPECT_LE(mine.max().item<double>(), 20 * theirs.max().item<double>() + 1e-6);
        }
      }
}

TEST_P(RqSplineOp, AnglesGoRoundTheCircle) {
  torch::manual_seed(2);
  const auto shape = shape_of(Tails::circular, 6);
  const auto x = 3 * (2 * torch::rand({40, 2}, torch::kDouble) - 1),
             raw = torch::randn({40, 2, shape.parameters()}, torch::kDouble);
  for (const bool inverse : {false, true}) {
    const auto once = differentiated(apply, x, raw, shape, inverse);
    for (const double turns : {-3.0, 1.0, 2.0}) {
      const auto again = differentiated(apply, x + turns * 2 * std::numbers::pi, raw, shape, inverse);
      for (size_t i = 0; i < 4; ++i) expect_near(again.tensors[i], once.tensors[i], 1e-10, Result::names[i]);
    }
  }
}

TEST_P(RqSplineOp, ParametersSharedByTheBatchGetTheSumOfItsGradients) {
  torch::manual_seed(3);
  for (const auto tails : {Tails::linear, Tails::none, Tails::circular})
    for (const int64_t bins : {1, 5, 8})
      for (const bool inverse : {false, true})
        for (const auto& batch : std::vector<std::vector<int64_t>>{{1}, {0}, {7}, {5, 3}, {600}}) {
          const auto shape = shape_of(tails, bins);
          auto sizes = batch;
          sizes.push_back(4);
          const auto x = 0.99 * (2 * torch::rand(sizes, torch::kDouble) - 1);
          const auto parameters = torch::randn({4, shape.parameters()}, torch::kDouble);
          const auto want = differentiated(reference, x, parameters, shape, inverse);
          const auto got = differentiated(apply, x, parameters, shape, inverse);
          for (size_t i = 0; i < 4; ++i)
            expect_near(got.tensors[i], want.tensors[i], 1e-10,
                        c10::str(Result::names[i], ", tails ", name_of(tails), ", bins ", bins, ", inverse ", inverse,
                                 ", batch ", batch, ", seed 3"));
        }
}

TEST_P(RqSplineOp, SecondGradientsAreThoseOfTheReference) {
  torch::manual_seed(5);
  for (const auto tails : {Tails::linear, Tails::none, Tails::circular})
    for (const bool inverse : {false, true})
      for (const bool shared : {false, true}) {
        const auto shape = shape_of(tails, 4);
        const auto point = 0.9 * (2 * torch::rand({6, 3}, torch::kDouble) - 1);
        const auto raw = shared ? torch::randn({3, shape.parameters()}, torch::kDouble)
                                : torch::randn({6, 3, shape.parameters()}, torch::kDouble);
        const auto second = [&](Map map) {
          const auto x = point.detach().requires_grad_(), parameters = raw.detach().requires_grad_();
          const auto [value, log_det] = map(x, parameters, shape, inverse);
          const auto first = torch::autograd::grad({loss_of(value, log_det)}, {x, parameters}, {}, true, true);
          return torch::autograd::grad({first[0].square().sum() + first[1].square().sum()}, {x, parameters});
        };
        const auto got = second(apply), want = second(reference);
        for (size_t i = 0; i < 2; ++i)
          expect_near(got[i], want[i], 1e-9,
                      c10::str(i == 0 ? "x" : "parameters", ", tails ", name_of(tails), ", inverse ", inverse,
                               ", shared ", shared, ", seed 5"));
      }
}

TEST_P(RqSplineOp, OnlyWhatAsksForAGradientGetsOne) {
  const auto shape = shape_of(Tails::linear, 4);
  const auto x = torch::rand({5, 2}, torch::kDouble), raw = torch::randn({5, 2, shape.parameters()}, torch::kDouble);
  const auto with_x = x.clone().requires_grad_(), with_raw = raw.clone().requires_grad_();
  for (const bool twice : {false, true}) {
    const auto [v1, l1] = apply(with_x, raw, shape, false);
    EXPECT_TRUE(torch::autograd::grad({v1.sin().sum()}, {with_x}, {}, true, twice)[0].isfinite().all().item<bool>());
    const auto [v2, l2] = apply(x, with_raw, shape, true);
    EXPECT_TRUE(torch::autograd::grad({l2.sum()}, {with_raw}, {}, true, twice)[0].isfinite().all().item<bool>());
  }
  EXPECT_FALSE(std::get<0>(apply(x, raw, shape, false)).requires_grad());
}

TEST_P(RqSplineOp, ANaNStaysInItsElement) {
  torch::manual_seed(9);
  for (const auto tails : {Tails::linear, Tails::none, Tails::circular})
    for (const auto dtype : {torch::kFloat, torch::kDouble})
      for (const bool inverse : {false, true}) {
        SCOPED_TRACE(c10::str("tails ", name_of(tails), ", inverse ", inverse, ", ", dtype, ", seed 9"));
        const auto shape = shape_of(tails, 8);
        const auto x = 0.9 * (2 * torch::rand({21, 3}, dtype) - 1);
        const auto raw = torch::randn({21, 3, shape.parameters()}, dtype);
        const auto clean = differentiated(apply, x, raw, shape, inverse);
        const double nan = std::numeric_limits<double>::quiet_NaN();
        auto bad_x = x.clone(), bad_raw = raw.clone();
        bad_x[5][1] = nan;
        bad_raw[9][0] = nan;
        const auto got = differentiated(apply, bad_x, bad_raw, shape, inverse);
        auto spoilt = torch::zeros({21, 3}, torch::kBool);
        spoilt[5][1] = true;
        spoilt[9][0] = true;
        EXPECT_TRUE(torch::equal(got.tensors[0].isnan(), spoilt));
        EXPECT_TRUE(torch::equal(got.tensors[1].isnan(), spoilt.any(-1)));
        // Elements of other rows do not even notice.
        const auto others = spoilt.any(-1).logical_not();
        for (size_t i = 0; i < 4; ++i)
          EXPECT_TRUE(torch::equal(got.tensors[i].index({others}), clean.tensors[i].index({others})))
              << Result::names[i];
      }
}

TEST_P(RqSplineOp, StridesDoNotMatter) {
  torch::manual_seed(4);
  const auto shape = shape_of(Tails::linear, 5);
  const auto x = torch::randn({6, 7, 3}), raw = torch::randn({6, 7, 3, shape.parameters()});
  const auto want = differentiated(apply, x, raw, shape, false);
  const auto got =
      differentiated(apply, x.permute({2, 0, 1}).contiguous().permute({1, 2, 0}),
                     torch::cat({raw, raw}, -1).narrow(-1, shape.parameters(), shape.parameters()), shape, false);
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(torch::equal(got.tensors[i], want.tensors[i])) << Result::names[i];
  // One set of parameters for a part of the batch dimensions.
  const auto some = raw.narrow(0, 0, 1);
  const auto narrow = differentiated(apply, x, some, shape, false),
             wide = differentiated(reference, x, some, shape, false);
  for (size_t i = 0; i < 4; ++i) expect_near(narrow.tensors[i], wide.tensors[i], 1e-4, Result::names[i]);
}

TEST_P(RqSplineOp, TheNumberOfThreadsDoesNotMatter) {
  torch::manual_seed(6);
  const int before = at::get_num_threads();
  const auto shape = shape_of(Tails::linear, 8);
  const auto x = torch::randn({5000, 3}), raw = torch::randn({5000, 3, shape.parameters()});
  for (const bool shared : {false, true}) {
    const auto parameters = shared ? raw[0] : raw;
    at::set_num_threads(1);
    const auto one = differentiated(apply, x, parameters, shape, false);
    at::set_num_threads(3);
    const auto three = differentiated(apply, x, parameters, shape, false);
    at::set_num_threads(before);
    for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(torch::equal(one.tensors[i], three.tensors[i])) << Result::names[i];
  }
}

TEST_P(RqSplineOp, OtherPrecisionsTakeTheReference) {
  const auto shape = shape_of(Tails::linear, 4);
  const auto x = torch::rand({5, 2}, torch::kDouble).to(torch::kBFloat16);
  const auto [value, log_det] = apply(x, torch::zeros({5, 2, shape.parameters()}, torch::kBFloat16), shape, false);
  EXPECT_EQ(value.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(value.isfinite().all().item<bool>());
}

TEST_P(RqSplineOp, RunsOnTheGpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "needs a GPU and a build with DIFFEO_CUDA";
  torch::manual_seed(8);
  for (const auto tails : {Tails::linear, Tails::none, Tails::circular})
    for (const int64_t bins : {1, 8, 17})
      for (const bool inverse : {false, true})
        for (const bool shared : {false, true}) {
          const auto shape = shape_of(tails, bins);
          const auto x = 0.99 * (2 * torch::rand({37, 5}, torch::kDouble) - 1);
          const auto raw = shared ? torch::randn({5, shape.parameters()}, torch::kDouble)
                                  : torch::randn({37, 5, shape.parameters()}, torch::kDouble);
          const auto want = differentiated(reference, x, raw, shape, inverse);
          const auto got = differentiated(apply, x.cuda(), raw.cuda(), shape, inverse);
          for (size_t i = 0; i < 4; ++i)
            expect_near(got.tensors[i].cpu(), want.tensors[i], 1e-10,
                        c10::str(Result::names[i], ", tails ", name_of(tails), ", bins ", bins, ", inverse ", inverse,
                                 ", shared ", shared, ", seed 8"));
        }
}

INSTANTIATE_TEST_SUITE_P(Every, RqSplineOp, ::testing::ValuesIn(cpu_capabilities()),
                         [](const auto& info) { return to_string(info.param); });

TEST(CpuCapability, AGuardChoosesAndPutsBack) {
  const auto before = cpu_capability();
  {
    CpuCapabilityGuard guard(CpuCapability::baseline);
    EXPECT_EQ(cpu_capability(), CpuCapability::baseline);
  }
  EXPECT_EQ(cpu_capability(), before);
  EXPECT_EQ(cpu_capabilities().front(), CpuCapability::baseline);
}

}  // namespace
}  // namespace diffeo::rq_spline
