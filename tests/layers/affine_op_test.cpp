// The fused affine map against its reference in plain tensors, at every form of scale, in both directions, in both
// precisions and with every instruction set of this machine.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "diffeo/layers/affine/affine_op.h"
#include "diffeo/layers/base/cpu_capability.h"

namespace diffeo::affine {
namespace {

using torch::Tensor;

constexpr Scale scales[] = {Scale::bounded, Scale::exp, Scale::sigmoid, Scale::softplus};
constexpr const char* scale_names[] = {"bounded", "exp", "sigmoid", "softplus"};

using Map = std::tuple<Tensor, Tensor> (*)(const Tensor&, const Tensor&, const Form&, bool);

struct Result {
  std::vector<Tensor> tensors;
  static constexpr const char* names[] = {"value", "log_det", "by_x", "by_parameters"};
};

/// A scalar that no output leaves out and that is not linear in any.
Tensor loss_of(const Tensor& value, const Tensor& log_det) {
  return value.sin().sum() + (log_det * log_det.cos()).sum();
}

Result differentiated(Map map, Tensor x, Tensor parameters, const Form& form, bool inverse) {
  x = x.detach().requires_grad_();
  parameters = parameters.detach().requires_grad_();
  const auto [value, log_det] = map(x, parameters, form, inverse);
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

class AffineOp : public ::testing::TestWithParam<CpuCapability> {
 protected:
  CpuCapabilityGuard guard{GetParam()};

  /// Calls body(form, inverse, its name) for all of them.
  template <class Body>
  void for_every_kind(const Body& body) {
    for (const auto scale : scales)
      for (const bool inverse : {false, true})
        body(Form{scale, 3}, inverse,
             c10::str(", ", scale_names[static_cast<int>(scale)], inverse ? ", inverse" : ", forward"));
  }
};

TEST_P(AffineOp, MatchesTheReference) {
  torch::manual_seed(1);
  // Batches and features around the sizes of registers and of the chunks of elements that a pass works through.
  const std::vector<std::vector<int64_t>> shapes{{1},       {5},      {0, 3},   {1, 1},  {7, 1},
                                                 {3, 4, 3}, {40, 16}, {33, 17}, {3, 600}};
  for_every_kind([&](const Form& form, bool inverse, const std::string& kind) {
    for (const auto& sizes : shapes)
      for (const bool single : {false, true}) {
        const auto type = single ? torch::kFloat : torch::kDouble;
        auto more = sizes;
        more.push_back(2);
        const auto x = torch::randn(sizes, torch::kDouble), parameters = torch::randn(more, torch::kDouble);
        const auto want = differentiated(reference, x, parameters, form, inverse);
        const auto got = differentiated(apply, x.to(type), parameters.to(type), form, inverse);
        // A sum over 600 features is what float32 knows least of, and the loss is steep in it.
        for (size_t i = 0; i < 4; ++i)
          expect_near(got.tensors[i].to(torch::kDouble), want.tensors[i],
                      !single             ? 1e-10
                      : sizes.back() > 99 ? 1e-3
                                          : 5e-5,
                      c10::str(Result::names[i], kind, ", x ", sizes, ", ", type, ", seed 1"));
      }
  });
}

TEST_P(AffineOp, ParametersSharedByTheBatchGetTheSumOfItsGradients) {
  torch::manual_seed(2);
  for_every_kind([&](const Form& form, bool inverse, const std::string& kind) {
    for (const auto& sizes :
         std::vector<std::vector<int64_t>>{{1, 3}, {0, 3}, {7, 1}, {5, 3, 4}, {600, 5}, {300, 33}}) {
      const auto x = torch::randn(sizes, torch::kDouble), parameters = torch::randn({sizes.back(), 2}, torch::kDouble);
      const auto want = differentiated(reference, x, parameters, form, inverse);
      for (const bool single : {false, true}) {
        const auto type = single ? torch::kFloat : torch::kDouble;
        const auto got = differentiated(apply, x.to(type), parameters.to(type), form, inverse);
        for (size_t i = 0; i < 4; ++i)
          expect_near(got.tensors[i].to(torch::kDouble), want.tensors[i], single ? 1e-3 : 1e-10,
                      c10::str(Result::names[i], kind, ", x ", sizes, ", ", type, ", seed 2"));
      }
    }
  });
}

TEST_P(AffineOp, SecondGradientsAreThoseOfTheReference) {
  torch::manual_seed(3);
  for_every_kind([&](const Form& form, bool inverse, const std::string& kind) {
    for (const bool shared : {false, true}) {
      const auto point = torch::randn({6, 3}, torch::kDouble);
      const auto raw = shared ? torch::randn({3, 2}, torch::kDouble) : torch::randn({6, 3, 2}, torch::kDouble);
      const auto second = [&](Map map) {
        const auto x = point.detach().requires_grad_(), parameters = raw.detach().requires_grad_();
        const auto [value, log_det] = map(x, parameters, form, inverse);
        const auto first = torch::autograd::grad({loss_of(value, log_det)}, {x, parameters}, {}, true, true);
        return torch::autograd::grad({first[0].square().sum() + first[1].square().sum()}, {x, parameters});
      };
      const auto got = second(apply), want = second(reference);
      for (size_t i = 0; i < 2; ++i)
        expect_near(got[i], want[i], 1e-9,
                    c10::str(i == 0 ? "x" : "parameters", kind, ", shared ", shared, ", seed 3"));
    }
  });
}

TEST_P(AffineOp, GradientsAgreeWithDifferences) {
  torch::manual_seed(4);
  for_every_kind([&](const Form& form, bool inverse, const std::string& kind) {
    for (const bool shared : {false, true}) {
      const auto x = torch::randn({4, 3}, torch::kDouble);
      const auto raw = shared ? torch::randn({3, 2}, torch::kDouble) : torch::randn({4, 3, 2}, torch::kDouble);
      const auto along_x = torch::randn_like(x), along_raw = torch::randn_like(raw);
      const auto loss = [&](double step) {
        const auto [value, log_det] = apply(x + step * along_x, raw + step * along_raw, form, inverse);
        return loss_of(value, log_det).item<double>();
      };
      const double step = 1e-5, difference = (loss(step) - loss(-step)) / (2 * step);
      const auto got = differentiated(apply, x, raw, form, inverse);
      const double slope = ((got.tensors[2] * along_x).sum() + (got.tensors[3] * along_raw).sum()).item<double>();
      EXPECT_NEAR(slope, difference, 1e-6 * (1 + std::abs(difference))) << kind << ", shared " << shared << ", seed 4";
    }
  });
}

TEST_P(AffineOp, OnlyWhatAsksForAGradientGetsOne) {
  const Form form{Scale::bounded, 4};
  const auto x = torch::rand({5, 2}, torch::kDouble), raw = torch::randn({5, 2, 2}, torch::kDouble);
  const auto with_x = x.clone().requires_grad_(), with_raw = raw.clone().requires_grad_();
  for (const bool twice : {false, true}) {
    const auto [v1, l1] = apply(with_x, raw, form, false);
    EXPECT_TRUE(torch::autograd::grad({v1.sin().sum()}, {with_x}, {}, true, twice)[0].isfinite().all().item<bool>());
    const auto [v2, l2] = apply(x, with_raw, form, true);
    EXPECT_TRUE(torch::autograd::grad({l2.sum()}, {with_raw}, {}, true, twice)[0].isfinite().all().item<bool>());
  }
  EXPECT_FALSE(std::get<0>(apply(x, raw, form, false)).requires_grad());
}

TEST_P(AffineOp, NoParameterMakesANaN) {
  for_every_kind([&](const Form& form, bool inverse, const std::string& kind) {
    for (const auto type : {torch::kFloat, torch::kDouble})
      for (const bool shared : {false, true})
        for (const double a : {-1e30, -800.0, -90.0, -30.0, 0.0, 30.0, 90.0, 800.0, 1e30}) {
          auto raw = torch::zeros({40, 3, 2}, type);
          raw.select(-1, 0).fill_(a);
          if (shared) raw = raw[0];
          const auto x = torch::tensor({0.0, -1.0, 1e-3}, type).expand({40, 3});
          for (const auto map : {apply, reference}) {
            const auto got = differentiated(map, x, raw, form, inverse);
            for (size_t i = 0; i < 4; ++i) {
              // The cosine of a value that float32 cannot hold is the loss's own NaN.
              if (i >= 2 && got.tensors[0].isinf().any().item<bool>()) continue;
              EXPECT_FALSE(got.tensors[i].isnan().any().item<bool>())
                  << Result::names[i] << kind << ", a " << a << ", " << type << ", shared " << shared
                  << (map == reference ? ", reference" : "");
            }
          }
        }
  });
}

TEST_P(AffineOp, AScaleBeyondTheTypeStaysAtTheLargestAsInTheReference) {
  const Form form{Scale::exp, 4};
  for (const bool inverse : {false, true})
    for (const double a : {-1000.0, 1000.0}) {
      const auto x = torch::tensor({{1.0, -1e-3}}, torch::kDouble),
                 raw = torch::tensor({{a, 0.0}, {a, 0.0}}, torch::kDouble);
      const auto results = [&](Map map) {
        const auto from = x.clone().requires_grad_(), parameters = raw.clone().requires_grad_();
        const auto [value, log_det] = map(from, parameters, form, inverse);
        const auto grads = torch::autograd::grad({value.sum() + 2 * log_det.sum()}, {from, parameters});
        return std::vector<Tensor>{value, log_det, grads[0], grads[1]};
      };
      const auto want = results(reference), got = results(apply);
      for (size_t i = 0; i < 4; ++i)
        EXPECT_TRUE(torch::allclose(got[i], want[i], 1e-10)) << Result::names[i] << ", a " << a;
    }
}

TEST_P(AffineOp, ANaNStaysInItsRow) {
  torch::manual_seed(5);
  for_every_kind([&](const Form& form, bool inverse, const std::string& kind) {
    const auto x = torch::randn({21, 3}), raw = torch::randn({21, 3, 2});
    const auto clean = differentiated(apply, x, raw, form, inverse);
    auto bad_x = x.clone(), bad_raw = raw.clone();
    bad_x[5][1] = std::numeric_limits<double>::quiet_NaN();
    bad_raw[9][0][0] = std::numeric_limits<double>::quiet_NaN();
    const auto got = differentiated(apply, bad_x, bad_raw, form, inverse);
    EXPECT_TRUE(got.tensors[0][5][1].isnan().item<bool>()) << kind;
    EXPECT_TRUE(got.tensors[0][9][0].isnan().item<bool>() && got.tensors[1][9].isnan().item<bool>()) << kind;
    auto others = torch::ones({21}, torch::kBool);
    others[5] = others[9] = false;
    for (size_t i = 0; i < 4; ++i)
      EXPECT_TRUE(torch::equal(got.tensors[i].index({others}), clean.tensors[i].index({others})))
          << Result::names[i] << kind << ", seed 5";
  });
}

TEST_P(AffineOp, StridesDoNotMatter) {
  torch::manual_seed(6);
  const auto x = torch::randn({6, 7, 3}), raw = torch::randn({6, 7, 3, 2});
  for_every_kind([&](const Form& form, bool inverse, const std::string& kind) {
    const auto want = differentiated(apply, x, raw, form, inverse);
    const auto got = differentiated(apply, x.permute({2, 0, 1}).contiguous().permute({1, 2, 0}),
                                    torch::cat({raw, raw}, -1).narrow(-1, 2, 2), form, inverse);
    for (size_t i = 0; i < 4; ++i)
      EXPECT_TRUE(torch::equal(got.tensors[i], want.tensors[i])) << Result::names[i] << kind;
    // One set of parameters for a part of the batch dimensions.
    const auto some = raw.narrow(0, 0, 1);
    const auto narrow = differentiated(apply, x, some, form, inverse),
               wide = differentiated(reference, x, some, form, inverse);
    for (size_t i = 0; i < 4; ++i) expect_near(narrow.tensors[i], wide.tensors[i], 1e-4, Result::names[i] + kind);
  });
}

TEST_P(AffineOp, TheNumberOfThreadsDoesNotMatter) {
  torch::manual_seed(7);
  const int before = at::get_num_threads();
  const auto x = torch::randn({70000, 3}), raw = torch::randn({70000, 3, 2});
  for_every_kind([&](const Form& form, bool inverse, const std::string& kind) {
    for (const bool shared : {false, true}) {
      const auto parameters = shared ? raw[0] : raw;
      at::set_num_threads(1);
      const auto one = differentiated(apply, x, parameters, form, inverse);
      at::set_num_threads(2);
      const auto two = differentiated(apply, x, parameters, form, inverse);
      at::set_num_threads(before);
      for (size_t i = 0; i < 4; ++i)
        EXPECT_TRUE(torch::equal(one.tensors[i], two.tensors[i])) << Result::names[i] << kind << ", shared " << shared;
    }
  });
}

TEST_P(AffineOp, OtherPrecisionsTakeTheReference) {
  const auto x = torch::rand({5, 2}, torch::kDouble).to(torch::kBFloat16);
  const auto [value, log_det] = apply(x, torch::zeros({5, 2, 2}, torch::kBFloat16), {Scale::bounded, 4}, false);
  EXPECT_EQ(value.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(value.isfinite().all().item<bool>());
}

TEST_P(AffineOp, RunsOnTheGpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "needs a GPU and a build with DIFFEO_CUDA";
  torch::manual_seed(8);
  for_every_kind([&](const Form& form, bool inverse, const std::string& kind) {
    for (const int64_t features : {1, 5, 70})
      for (const bool shared : {false, true}) {
        const auto x = torch::randn({37, features}, torch::kDouble);
        const auto raw =
            shared ? torch::randn({features, 2}, torch::kDouble) : torch::randn({37, features, 2}, torch::kDouble);
        const auto want = differentiated(reference, x, raw, form, inverse);
        const auto got = differentiated(apply, x.cuda(), raw.cuda(), form, inverse);
        for (size_t i = 0; i < 4; ++i)
          expect_near(got.tensors[i].cpu(), want.tensors[i], 1e-10,
                      c10::str(Result::names[i], kind, ", features ", features, ", shared ", shared, ", seed 8"));
      }
  });
}

INSTANTIATE_TEST_SUITE_P(Every, AffineOp, ::testing::ValuesIn(cpu_capabilities()),
                         [](const auto& info) { return to_string(info.param); });

}  // namespace
}  // namespace diffeo::affine
