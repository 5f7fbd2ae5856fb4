// The masked linear map that leaves out the zeros against its definition, x (W * mask)^T + b: values, gradients and
// gradients of gradients, for every instruction set of this machine.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "diffeo/layers/base/cpu_capability.h"
#include "diffeo/layers/nets/masked_linear.h"

namespace diffeo {
namespace {

constexpr int64_t seed = 31;
using Degrees = std::vector<int64_t>;

/// Sorted degrees from `lowest` to `highest`, as evenly as may be.
Degrees spread(int64_t count, int64_t lowest, int64_t highest) {
  Degrees degrees;
  for (int64_t i = 0; i < count; ++i) degrees.push_back(lowest + i * (highest - lowest + 1) / count);
  return degrees;
}

/// The output, and the gradients of a function of it that is not linear.
std::vector<Tensor> differentiated(MaskedLinear& map, const Tensor& given, bool by_definition) {
  const auto x = given.detach().requires_grad_();
  const auto out =
      by_definition ? torch::linear(x, map.weight * map.named_buffers()["mask"], map.bias) : map.forward(x);
  const auto grads = torch::autograd::grad({(out * out.cos()).sum()}, {x, map.weight, map.bias});
  return {out.detach(), grads[0], grads[1], grads[2]};
}

void expect_near(const std::vector<Tensor>& got, const std::vector<Tensor>& want, double tolerance) {
  constexpr const char* names[] = {"output", "by x", "by weight", "by bias"};
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].sizes(), want[i].sizes()) << names[i];
    if (got[i].numel() == 0) continue;
    EXPECT_LE(((got[i] - want[i]).abs() / (1 + want[i].abs())).max().item<double>(), tolerance) << names[i];
  }
}

class MaskedLinearMap : public ::testing::TestWithParam<CpuCapability> {
 protected:
  CpuCapabilityGuard guard{GetParam()};
};

TEST_P(MaskedLinearMap, IsItsDefinition) {
  torch::manual_seed(seed);
  for (const int64_t inputs : {1, 5, 31, 32, 33, 43, 100})
    for (const int64_t units : {1, 2, 7, 32, 64, 70})
      for (const int64_t rows : {0, 1, 11, 12, 13, 200, 300})
        for (const bool strict : {false, true}) {
          SCOPED_TRACE(
              c10::str(inputs, " inputs, ", units, " units, ", rows, " rows, strict ", strict, ", seed ", seed));
          MaskedLinear map(spread(inputs, 1, 9), spread(units, strict ? 1 : 0, 8), strict);
          map.to(torch::kFloat64);
          ASSERT_EQ(map.seen().size(), static_cast<size_t>(units));
          const auto x = torch::randn({rows, inputs}, torch::kDouble);
          expect_near(differentiated(map, x, false), differentiated(map, x, true), 1e-11);
        }
}

TEST_P(MaskedLinearMap, InFloat32ItIsAsNearToTheTruthAsItsDefinition) {
  torch::manual_seed(seed);
  for (const int64_t rows : {1, 64, 700}) {
    SCOPED_TRACE(c10::str(rows, " rows, seed ", seed));
    MaskedLinear map(spread(130, 1, 20), spread(90, 1, 20), false), exact(spread(130, 1, 20), spread(90, 1, 20), false);
    exact.to(torch::kFloat64);
    copy_state(map, exact);
    const auto x = torch::randn({rows, 130});
    const auto got = differentiated(map, x, false), measure = differentiated(map, x, true),
               truth = differentiated(exact, x.to(torch::kFloat64), true);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].scalar_type(), torch::kFloat);
      const auto error = [&](const Tensor& of) {
        return (of.to(torch::kFloat64) - truth[i]).abs().max().item<double>();
      };
      EXPECT_LE(error(got[i]), 3 * error(measure[i]) + 1e-6) << i;
    }
  }
}

TEST_P(MaskedLinearMap, SecondGradientsAreThoseOfItsDefinition) {
  torch::manual_seed(seed);
  MaskedLinear map(spread(20, 1, 5), spread(40, 1, 5), false);
  map.to(torch::kFloat64);
  const auto given = torch::randn({9, 20}, torch::kDouble);
  const auto second = [&](bool by_definition) {
    const auto x = given.detach().requires_grad_();
    const auto out =
        by_definition ? torch::linear(x, map.weight * map.named_buffers()["mask"], map.bias) : map.forward(x);
    const auto first = torch::autograd::grad({out.sin().sum()}, {x, map.weight}, {}, true, true);
    return torch::autograd::grad({first[0].square().sum() + first[1].square().sum()}, {x, map.weight, map.bias});
  };
  expect_near(second(false), second(true), 1e-11);
}

TEST_P(MaskedLinearMap, HiddenWeightsCountForNothing) {
  torch::manual_seed(seed);
  MaskedLinear map(spread(50, 1, 9), spread(70, 1, 9), true);
  torch::NoGradGuard no_grad;
  const auto x = torch::randn({30, 50});
  const auto before = map.forward(x);
  map.weight.masked_fill_(map.named_buffers()["mask"] == 0, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(torch::equal(map.forward(x), before));
}

TEST_P(MaskedLinearMap, TheNumberOfThreadsAndStridesDoNotMatter) {
  torch::manual_seed(seed);
  const int before = at::get_num_threads();
  MaskedLinear map(spread(100, 1, 9), spread(130, 1, 9), false);
  const auto x = torch::randn({1000, 100});
  at::set_num_threads(1);
  const auto one = differentiated(map, x, false), strided = differentiated(map, x.t().contiguous().t(), false);
  at::set_num_threads(2);
  const auto two = differentiated(map, x, false);
  at::set_num_threads(before);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(torch::equal(one[i], two[i])) << i;
    EXPECT_TRUE(torch::equal(one[i], strided[i])) << i;
  }
}

TEST_P(MaskedLinearMap, AnyBatch) {
  torch::manual_seed(seed);
  MaskedLinear map({1, 2, 3}, {1, 1, 2, 3}, false);
  for (const auto& batch : std::vector<std::vector<int64_t>>{{}, {0}, {2, 3}, {2, 0, 3}}) {
    auto sizes = batch;
    sizes.push_back(3);
    const auto x = torch::randn(sizes);
    expect_near(differentiated(map, x, false), differentiated(map, x, true), 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Every, MaskedLinearMap, ::testing::ValuesIn(cpu_capabilities()),
                         [](const auto& info) { return to_string(info.param); });

TEST(MaskedLinearMasks, OfAnotherFormTakeTheDefinition) {
  torch::manual_seed(seed);
  MaskedLinear map({3, 1, 2}, {1, 2, 3, 2}, false);
  EXPECT_TRUE(map.seen().empty());
  const auto x = torch::randn({5, 3});
  expect_near(differentiated(map, x, false), differentiated(map, x, true), 0);
  // Units in any order are of the right form, as long as the inputs are sorted.
  EXPECT_EQ(MaskedLinear({1, 2, 3}, {3, 1, 2}, true).seen(), (Degrees{2, 0, 1}));
}

}  // namespace
}  // namespace diffeo
