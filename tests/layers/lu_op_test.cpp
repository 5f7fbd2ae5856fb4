// The LU map as one node against its reference in plain tensors, in both directions.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "diffeo/layers/linear/lu_op.h"

namespace diffeo::lu {
namespace {

using torch::Tensor;

using Map = std::tuple<Tensor, Tensor> (*)(const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool);

struct Setting {
  Tensor x, lu, bias, order;  ///< bias and order may be undefined
  bool inverse;

  Setting to(torch::Dtype type) const {
    return {x.to(type), lu.to(type), bias.defined() ? bias.to(type) : bias, order, inverse};
  }
};

Setting setting_of(std::vector<int64_t> batch, int64_t features, bool bias, bool permuted, bool inverse) {
  batch.push_back(features);
  return {
      torch::randn(batch, torch::kDouble),
      torch::randn({features, features}, torch::kDouble) / std::sqrt(features) + torch::eye(features, torch::kDouble),
      bias ? torch::randn({features}, torch::kDouble) : Tensor(),
      permuted ? torch::randperm(features, torch::kLong) : Tensor(), inverse};
}

/// Calls body(setting, its name) for many.
template <class Body>
void for_every_setting(const Body& body) {
  torch::manual_seed(1);
  for (const auto& batch : std::vector<std::vector<int64_t>>{{}, {0}, {1}, {37}, {3, 4}})
    for (const int64_t features : {1, 2, 5, 16})
      for (const bool bias : {false, true})
        for (const bool permuted : {false, true})
          for (const bool inverse : {false, true})
            body(setting_of(batch, features, bias, permuted, inverse),
                 c10::str(", batch ", batch, ", features ", features, bias ? ", bias" : "",
                          permuted ? ", permuted" : "", inverse ? ", inverse" : "", ", seed 1"));
}

Tensor loss_of(const Tensor& value, const Tensor& log_det) {
  return value.sin().sum() + (log_det * (0.1 * log_det).cos()).sum();
}

/// value, log_det and the gradients of all that is there; or, with `twice`, those of a function of the gradients.
std::vector<Tensor> differentiated(Map map, const Setting& given, bool twice = false) {
  const auto leaf = [](const Tensor& t) { return t.defined() ? t.detach().requires_grad_() : t; };
  const auto x = leaf(given.x), lu = leaf(given.lu), bias = leaf(given.bias);
  std::vector<Tensor> inputs{x, lu};
  if (bias.defined()) inputs.push_back(bias);
  const auto [value, log_det] = map(x, lu, bias, given.order, given.inverse);
  auto found = torch::autograd::grad({loss_of(value, log_det)}, inputs, {}, twice, twice, true);
  if (twice) {
    Tensor total = torch::zeros({}, x.options());
    for (const auto& grad : found) total = total + (grad * grad.cos()).sum();
    return torch::autograd::grad({total}, inputs, {}, false, false, true);
  }
  found.push_back(value.detach());
  found.push_back(log_det.detach());
  return found;
}

void expect_near(const std::vector<Tensor>& got, const std::vector<Tensor>& want, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].sizes(), want[i].sizes()) << i << what;
    if (got[i].numel() == 0) continue;
    const auto error = ((got[i].to(torch::kDouble) - want[i]).abs() / (1 + want[i].abs())).max().item<double>();
    EXPECT_LE(error, tolerance) << i << what;
  }
}

TEST(LuOp, MatchesTheReference) {
  for_every_setting([](const Setting& setting, const std::string& what) {
    const auto want = differentiated(reference, setting);
    expect_near(differentiated(apply, setting), want, 1e-10, what);
    // A random triangular matrix loses some digits; the reference in float32 loses as many.
    const auto single = differentiated(apply, setting.to(torch::kFloat)),
               measure = differentiated(reference, setting.to(torch::kFloat));
    for (size_t i = 0; i < want.size(); ++i) {
      if (want[i].numel() == 0) continue;
      const auto error = [&](const Tensor& t) {
        return ((t.to(torch::kDouble) - want[i]).abs() / (1 + want[i].abs())).max().item<double>();
      };
      EXPECT_LE(error(single[i]), 20 * error(measure[i]) + 1e-5) << i << what;
    }
  });
}

TEST(LuOp, SecondGradientsAreThoseOfTheReference) {
  for_every_setting([](const Setting& setting, const std::string& what) {
    if (setting.x.numel() == 0) return;
    expect_near(differentiated(apply, setting, true), differentiated(reference, setting, true), 1e-8, what);
  });
}

TEST(LuOp, GradientsAgreeWithDifferences) {
  for_every_setting([](const Setting& setting, const std::string& what) {
    if (setting.x.numel() == 0) return;
    const auto along_x = torch::randn_like(setting.x), along_lu = torch::randn_like(setting.lu);
    const auto loss = [&](double step) {
      const auto [value, log_det] =
          apply(setting.x + step * along_x, setting.lu + step * along_lu, setting.bias, setting.order, setting.inverse);
      return loss_of(value, log_det).item<double>();
    };
    const double step = 1e-6, difference = (loss(step) - loss(-step)) / (2 * step);
    const auto grads = differentiated(apply, setting);
    const auto slope = ((grads[0] * along_x).sum() + (grads[1] * along_lu).sum()).item<double>();
    EXPECT_NEAR(slope, difference, 1e-5 * (1 + std::abs(difference))) << what;
  });
}

TEST(LuOp, StridesDoNotMatter) {
  torch::manual_seed(2);
  for (const bool inverse : {false, true}) {
    const auto plain = setting_of({6, 4}, 5, true, true, inverse);
    auto strided = plain;
    strided.x = plain.x.permute({2, 0, 1}).contiguous().permute({1, 2, 0});
    strided.lu = plain.lu.t().contiguous().t();
    expect_near(differentiated(apply, strided), differentiated(apply, plain), 1e-12, ", seed 2");
  }
}

TEST(LuOp, OnlyWhatAsksForAGradientGetsOne) {
  torch::manual_seed(3);
  for (const bool inverse : {false, true})
    for (const bool twice : {false, true}) {
      const auto s = setting_of({7}, 4, true, true, inverse);
      const auto x = s.x.clone().requires_grad_(), lu = s.lu.clone().requires_grad_(),
                 bias = s.bias.clone().requires_grad_();
      const auto all = differentiated(reference, s);
      const auto grad = [&](const Tensor& x, const Tensor& lu, const Tensor& bias, const Tensor& by) {
        const auto [value, log_det] = apply(x, lu, bias, s.order, inverse);
        return std::vector<Tensor>{torch::autograd::grad({loss_of(value, log_det)}, {by}, {}, true, twice)[0]};
      };
      expect_near(grad(x, s.lu, s.bias, x), {all[0]}, 1e-10, ", x");
      expect_near(grad(s.x, lu, s.bias, lu), {all[1]}, 1e-10, ", lu");
      expect_near(grad(s.x, s.lu, bias, bias), {all[2]}, 1e-10, ", bias");
    }
}

TEST(LuOp, ExtremeDiagonalsMakeNoNaN) {
  torch::manual_seed(4);
  for (const auto type : {torch::kFloat, torch::kDouble})
    for (const bool inverse : {false, true})
      for (const double diagonal : {-1e4, -100.0, 100.0, 1e4}) {
        auto s = setting_of({9}, 3, true, true, inverse).to(type);
        s.lu.diagonal().fill_(diagonal);
        for (const auto& t : differentiated(apply, s))
          EXPECT_TRUE(t.isfinite().all().item<bool>())
              << "diagonal " << diagonal << ", " << type << ", inverse " << inverse;
      }
}

}  // namespace
}  // namespace diffeo::lu
