// Inputs that break the splines of other libraries (raw parameters of extreme spread, points at and beyond the ends),
// for the kernels of every instruction set, and for the reference.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <cmath>
#include <limits>

#include "diffeo/layers/base/cpu_capability.h"
#include "diffeo/layers/base/error.h"
#include "diffeo/layers/base/registry.h"
#include "diffeo/layers/rq_spline/rq_spline_op.h"

namespace diffeo::rq_spline {
namespace {

using torch::Tensor;

struct Way {
  std::string name;
  std::tuple<Tensor, Tensor> (*map)(const Tensor&, const Tensor&, const Shape&, bool);
  CpuCapability capability;
};

std::vector<Way> every_way() {
  std::vector<Way> ways;
  for (const auto capability : cpu_capabilities()) ways.push_back({to_string(capability), apply, capability});
  ways.push_back({"reference", reference, cpu_capability()});
  return ways;
}

constexpr double bound = 3;
const Shape usual{8, Tails::linear, -bound, bound, -bound, bound, 1e-3, 1e-3, 1e-3};

double largest(const Tensor& values) { return values.abs().max().item<double>(); }
bool finite(const Tensor& values) { return values.isfinite().all().item<bool>(); }

class SplineFaults : public ::testing::TestWithParam<Way> {
 protected:
  std::tuple<Tensor, Tensor> map(const Tensor& x, const Tensor& raw, const Shape& shape, bool inverse) const {
    return GetParam().map(x, raw, shape, inverse);
  }
  CpuCapabilityGuard guard{GetParam().capability};
};

TEST_P(SplineFaults, ParametersOfAnySpreadGiveFiniteValuesThatInvert) {
  for (const auto dtype : {torch::kFloat32, torch::kFloat64})
    for (const double scale : {1.0, 5.0, 50.0, 500.0}) {
      SCOPED_TRACE(c10::str(dtype, ", parameters ", scale, " N(0, 1), seed 11"));
      torch::manual_seed(11);
      const int64_t points = GetParam().name == "reference" ? 20000 : 200000;  // it takes thirty times as long
      const auto x = bound * (2 * torch::rand({points, 1}, dtype) - 1);
      const auto raw = scale * torch::randn({points, 1, usual.parameters()}, dtype);
      const auto [y, log_det] = map(x, raw, usual, false);
      const auto [back, back_log_det] = map(y, raw, usual, true);
      const auto [again, again_log_det] = map(back, raw, usual, false);
      for (const auto& values : {y, log_det, back, back_log_det}) EXPECT_TRUE(finite(values));
      // Each on its own: the value, the point, and both log-dets.
      const bool single = dtype == torch::kFloat32;
      EXPECT_LE(largest(again - y), single ? 5e-6 : 1e-13);
      EXPECT_LE(largest(again_log_det + back_log_det), single ? 1e-5 : 1e-12);
      // A point can be known only to the rounding of y, over the slope there; the least one on the way counts.
      const auto least_slope = at::minimum(log_det, again_log_det).exp().unsqueeze(-1);
      const auto error = (back - x).abs();
      if (scale == 1) {
        EXPECT_LE(largest(error), single ? 1e-2 : 1e-10);
        EXPECT_LE(error.mean().item<double>(), single ? 2e-6 : 1e-14);
        EXPECT_LE(largest(error * least_slope), single ? 1e-5 : 1e-13);
        EXPECT_LE(largest(log_det + back_log_det), single ? 1e-2 : 1e-10);
      } else if (!single) {
        EXPECT_LE(largest(error), 1e-5);
        EXPECT_LE(largest(log_det + back_log_det), 1e-3);
      }
    }
}

TEST_P(SplineFaults, GradientsOfParametersOfAnySpreadAreFinite) {
  for (const auto dtype : {torch::kFloat32, torch::kFloat64})
    for (const double scale : {5.0, 50.0, 500.0})
      for (const bool inverse : {false, true}) {
        SCOPED_TRACE(c10::str(dtype, ", parameters ", scale, " N(0, 1), inverse ", inverse, ", seed 12"));
        torch::manual_seed(12);
        const auto x = (1.1 * bound * (2 * torch::rand({20000, 1}, dtype) - 1)).requires_grad_();
        const auto raw = (scale * torch::randn({20000, 1, usual.parameters()}, dtype)).requires_grad_();
        const auto [y, log_det] = map(x, raw, usual, inverse);
        for (const auto& grad : torch::autograd::grad({y.sum() + log_det.sum()}, {x, raw})) EXPECT_TRUE(finite(grad));
      }
}

TEST_P(SplineFaults, BeyondTheBoundIsTheIdentityWithItsGradient) {
  torch::manual_seed(13);
  for (const auto dtype : {torch::kFloat32, torch::kFloat64})
    for (const bool inverse : {false, true}) {
      SCOPED_TRACE(c10::str(dtype, ", inverse ", inverse, ", seed 13"));
      const auto x = torch::tensor({3.5, 50.0, -3.5, -1e30, 1.0}, dtype).unsqueeze(-1).requires_grad_();
      const auto raw = (5 * torch::randn({5, 1, usual.parameters()}, dtype)).requires_grad_();
      const auto [y, log_det] = map(x, raw, usual, inverse);
      const auto grads = torch::autograd::grad({y.sum() + log_det.sum()}, {x, raw});
      EXPECT_TRUE(torch::equal(y.narrow(0, 0, 4), x.narrow(0, 0, 4)));
      EXPECT_TRUE(torch::equal(log_det.narrow(0, 0, 4), torch::zeros({4}, dtype)));
      EXPECT_TRUE(torch::equal(grads[0].narrow(0, 0, 4), torch::ones({4, 1}, dtype)));
      EXPECT_EQ(largest(grads[1].narrow(0, 0, 4)), 0);
      EXPECT_TRUE(finite(grads[0]) && finite(grads[1]));
      EXPECT_GT(largest(grads[1][4]), 0);
    }
}

TEST_P(SplineFaults, EveryPointInTheTails) {
  const Shape wide{8, Tails::linear, -4, 4, -4, 4, 1e-3, 1e-3, 1e-3};
  const auto x = torch::tensor({{5.0f}, {-6.0f}});
  for (const bool inverse : {false, true}) {
    const auto [y, log_det] = map(x, torch::randn({2, 1, wide.parameters()}), wide, inverse);
    EXPECT_TRUE(torch::equal(y, x));
    EXPECT_EQ(largest(log_det), 0);
  }
}

TEST_P(SplineFaults, ContinuousAtTheBound) {
  const float end = bound, out = std::nextafter(end, 10.0f), in = std::nextafter(end, 0.0f);
  torch::manual_seed(14);
  const auto raw = (2 * torch::randn({1, usual.parameters()})).expand({6, 1, usual.parameters()});
  const auto x = torch::tensor({-out, -end, -in, in, end, out}).unsqueeze(-1);
  for (const bool inverse : {false, true}) {
    SCOPED_TRACE(c10::str("inverse ", inverse, ", seed 14"));
    const auto [y, log_det] = map(x, raw, usual, inverse);
    EXPECT_TRUE(torch::equal(y.index({torch::tensor({0, 1, 4, 5})}), x.index({torch::tensor({0, 1, 4, 5})})));
    EXPECT_LE(largest(y - x), 1e-6);
    EXPECT_LE(largest(log_det), 1e-3);  // an ulp inside, the slope is not 1 any more
    EXPECT_LE(largest(log_det.index({torch::tensor({0, 1, 4, 5})})), 1e-6);
  }
}

TEST_P(SplineFaults, ALopsidedDomainInverts) {
  const Shape lopsided{8, Tails::none, -3, 3, -1, 1, 1e-3, 1e-3, 1e-3};
  torch::manual_seed(15);
  for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
    SCOPED_TRACE(c10::str(dtype, ", seed 15"));
    const auto x = 3 * (2 * torch::rand({20000, 1}, dtype) - 1),
               raw = torch::randn({20000, 1, lopsided.parameters()}, dtype);
    const auto [y, log_det] = map(x, raw, lopsided, false);
    EXPECT_LE(largest(y), 1.0);
    const auto [back, back_log_det] = map(y, raw, lopsided, true);
    const auto [again, again_log_det] = map(back, raw, lopsided, false);
    const bool single = dtype == torch::kFloat32;
    EXPECT_LE(largest(again - y), single ? 1e-6 : 1e-14);
    EXPECT_LE((back - x).abs().mean().item<double>(), single ? 2e-6 : 1e-14);
    EXPECT_LE(largest(again_log_det + back_log_det), single ? 1e-5 : 1e-12);
    const auto ends = torch::tensor({-3.0, 3.0}, dtype).unsqueeze(-1);
    EXPECT_TRUE(torch::equal(std::get<0>(map(ends, raw.narrow(0, 0, 2), lopsided, false)), ends / 3));
    EXPECT_TRUE(torch::equal(std::get<0>(map(ends / 3, raw.narrow(0, 0, 2), lopsided, true)), ends));
  }
}

TEST_P(SplineFaults, MinimumBinsBelowTheRoundingOfTheirSums) {
  // Floors that float32 cannot tell from nothing, on an interval far from 0: bins may vanish, numbers stay numbers.
  const Shape hard{16, Tails::none, 1000, 1001, -1, 1, 1e-9, 1e-9, 1e-9};
  torch::manual_seed(16);
  const auto x = 1000 + torch::rand({20000, 1}), raw = 20 * torch::randn({20000, 1, hard.parameters()});
  const auto [y, log_det] = map(x, raw, hard, false);
  EXPECT_TRUE(finite(y) && finite(log_det));
  EXPECT_LE(largest(y), 1.0);
  const auto [back, back_log_det] = map(y, raw, hard, true);
  EXPECT_TRUE(finite(back) && finite(back_log_det));
  EXPECT_TRUE(((back >= 1000) & (back <= 1001)).all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(Every, SplineFaults, ::testing::ValuesIn(every_way()),
                         [](const auto& info) { return info.param.name; });

UnivariatePtr bounded() { return build_univariate({{"type", "rq_spline"}, {"tails", "none"}, {"domain", {0.0, 1.0}}}); }

TEST(SplineFaultsOfTheMap, ABoundedDomainForgivesRoundingOnly) {
  const auto map = bounded();
  torch::manual_seed(17);
  const auto raw = torch::randn({3, 1, map->parameters()});
  const auto x = torch::tensor({0.5f, 1 + 1.2e-7f, -1e-7f}).unsqueeze(-1);
  for (const bool inverse : {false, true}) {
    const auto [y, log_det] = inverse ? map->inverse(x, raw) : map->forward(x, raw);
    EXPECT_TRUE(finite(y) && finite(log_det));
    EXPECT_EQ(y[1].item<float>(), 1.0f);
    EXPECT_EQ(y[2].item<float>(), 0.0f);
  }
  const auto far = torch::tensor({0.5f, 0.25f, 1.01f}).unsqueeze(-1);
  try {
    map->forward(far, raw);
    FAIL() << "a point outside of the domain was taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("row 2"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("1.01"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace diffeo::rq_spline
