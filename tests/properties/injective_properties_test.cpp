// Every registered layer onto fewer features, in every precision, must have an honest volume.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <cmath>

#include "diffeo/flows/flow.h"
#include "diffeo/layers/base/tangents.h"
#include "properties/cases.h"

namespace diffeo::testing {
namespace {

class InjectiveProperties : public ::testing::TestWithParam<Case> {
 protected:
  InjectiveProperties() : layer(build(GetParam())), tolerance(testing::tolerance(GetParam().dtype)) {}

  torch::TensorOptions options() const { return torch::TensorOptions(GetParam().dtype).device(GetParam().device); }
  Tensor points(std::vector<int64_t> batch) const { return points_in(layer->domain(), std::move(batch), options()); }
  Tensor latents(std::vector<int64_t> batch) const { return points_in(layer->codomain(), std::move(batch), options()); }
  LayerPtr in_double() const {
    auto copy = clone(*layer);
    copy->to(torch::kFloat64);
    return copy;
  }
  /// Networks are inverse to each other only as far as they were trained to be.
  bool has_left_inverse() const { return layer->spec().dump().find("free_form") == std::string::npos; }
  void expect_close(const Tensor& got, const Tensor& want, double looser = 1) const {
    ASSERT_EQ(got.sizes(), want.sizes());
    EXPECT_EQ(got.scalar_type(), want.scalar_type());
    EXPECT_TRUE(torch::allclose(got, want, looser * tolerance, looser * tolerance))
        << "largest difference " << (got - want).abs().max() << "\ngot " << got << "\nwant " << want;
  }
  /// d value / d input of one point.
  static Tensor jacobian(const Tensor& value, const Tensor& input) {
    std::vector<Tensor> rows;
    for (int64_t i = 0; i < value.numel(); ++i)
      rows.push_back(torch::autograd::grad({value.flatten()[i]}, {input}, {}, true, false, true)[0].flatten());
    return torch::stack(rows);
  }

  LayerPtr layer;
  double tolerance;
};

TEST_P(InjectiveProperties, SaysThatItIsInjective) {
  EXPECT_TRUE(layer->traits().injective);
  EXPECT_LT(layer->codomain().size(), layer->domain().size());
}

TEST_P(InjectiveProperties, ForwardUndoesInverseOnTheManifold) {
  for (auto batch : std::vector<std::vector<int64_t>>{{}, {1}, {16}, {3, 4}, {0}}) {
    const auto z = latents(batch);
    const auto there = layer->inverse(z);
    EXPECT_EQ(there.log_det.sizes(), at::IntArrayRef(batch));
    const auto back = layer->forward(there.value);
    EXPECT_EQ(back.value.sizes(), z.sizes());
    EXPECT_EQ(back.log_det.sizes(), at::IntArrayRef(batch));
    if (!has_left_inverse()) continue;
    expect_close(back.value, z, 10);
    expect_close(back.log_det, -there.log_det, 10);
  }
}

TEST_P(InjectiveProperties, LogDetIsHalfThatOfTheJacobiansProductWithItself) {
  const auto exact = in_double();
  for (int trial = 0; trial < 8; ++trial) {
    const auto x = points({});
    const auto there = layer->forward(x);
    const auto z = there.value.detach().to(torch::kFloat64).requires_grad_();
    const auto back = exact->inverse(z);
    const auto j = jacobian(back.value, z);
    const auto volume = 0.5 * torch::logdet(j.t().matmul(j));
    EXPECT_NEAR(back.log_det.item<double>(), volume.item<double>(), 1e-7);
    EXPECT_NEAR(there.log_det.item<double>(), -volume.item<double>(),
                10 * tolerance * (1 + std::abs(volume.item<double>())));
  }
}

TEST_P(InjectiveProperties, TangentsAreThoseOfTheJacobian) {
  const auto exact = in_double();
  const auto check = [&](const Tensor& from, bool forwards) {
    const auto point = from.detach().to(torch::kFloat64).requires_grad_();
    const auto v = torch::randn({3, point.size(0)}, point.options());
    const auto want =
        jacobian((forwards ? exact->forward(point) : exact->inverse(point)).value, point).matmul(v.t()).t();
    for (const bool gradients : {true, false}) {
      const at::AutoGradMode mode(gradients);
      const auto got = forwards ? push_forward(*exact, point, v) : push_inverse(*exact, point, v);
      EXPECT_TRUE(torch::allclose(got.tangents, want, 1e-8, 1e-8)) << got.tangents << want;
    }
  };
  check(points({}), true);
  check(latents({}), false);
}

TEST_P(InjectiveProperties, ABatchIsItsPointsOneByOne) {
  const auto x = points({5});
  const auto all = layer->forward(x);
  const auto without = [&] {
    torch::NoGradGuard no_grad;
    return layer->forward(x);
  }();
  expect_close(without.value, all.value);
  expect_close(without.log_det, all.log_det);
  for (int64_t i = 0; i < 5; ++i) {
    const auto one = layer->forward(x[i]);
    expect_close(one.value, all.value[i]);
    expect_close(one.log_det, all.log_det[i]);
  }
  expect_close(layer->forward(x.t().contiguous().t()).value, all.value);
}

TEST_P(InjectiveProperties, WrongArgumentsAreRefused) {
  const auto other = GetParam().dtype == torch::kFloat32 ? torch::kFloat64 : torch::kFloat32;
  EXPECT_THROW(layer->forward(torch::zeros({2, 99}, options())), Error);
  EXPECT_THROW(layer->inverse(points({2})), Error);
  EXPECT_THROW(layer->forward(points({2}).to(other)), Error);
  EXPECT_THROW(layer->forward(points({2}), torch::zeros({2, 1}, options())), Error);
}

TEST_P(InjectiveProperties, GradientsReachEveryParameterAndAgreeWithDifferences) {
  const auto exact = in_double();
  const auto x = points({16}).to(torch::kFloat64);
  const auto loss = [&] {
    const auto [z, log_det] = exact->forward(x);
    const auto back = exact->inverse(z.sin());
    return (z.sin() * torch::arange(1, z.size(-1) + 1, z.options())).sum() + log_det.square().sum() +
           back.value.sin().sum() + back.log_det.square().sum();
  };
  const auto parameters = exact->parameters();
  if (parameters.empty()) return;
  const auto grads = torch::autograd::grad({loss()}, parameters, {}, {}, false, true);
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto name = exact->named_parameters()[i].key();
    ASSERT_TRUE(grads[i].defined()) << name << " gets no gradient";
    EXPECT_GT(grads[i].abs().max().item<double>(), 0) << name << " gets a zero gradient";
    const auto direction = torch::randn_like(parameters[i]);
    auto parameter = parameters[i];
    const double step = 1e-6;
    parameter.add_(direction, step);
    const double up = loss().item<double>();
    parameter.sub_(direction, 2 * step);
    const double down = loss().item<double>();
    parameter.add_(direction, step);
    const double slope = (grads[i] * direction).sum().item<double>();
    EXPECT_NEAR((up - down) / (2 * step), slope, 1e-5 * (1 + std::abs(slope))) << name;
  }
}

TEST_P(InjectiveProperties, GradientsByPointsAgreeWithDifferences) {
  const auto exact = in_double();
  const auto x = points({4}).to(torch::kFloat64).requires_grad_();
  const auto loss = [&](const Tensor& at) {
    const auto [z, log_det] = exact->forward(at);
    return z.sin().sum() + log_det.square().sum();
  };
  const auto grad = torch::autograd::grad({loss(x)}, {x})[0], direction = torch::randn_like(x);
  const double step = 1e-6, slope = (grad * direction).sum().item<double>();
  const auto up = loss(x + step * direction), down = loss(x - step * direction);
  EXPECT_NEAR((up - down).item<double>() / (2 * step), slope, 1e-5 * (1 + std::abs(slope)));
}

TEST_P(InjectiveProperties, SpecRebuildsTheLayer) {
  const auto spec = layer->spec();
  const auto again = build_layer(spec);
  EXPECT_EQ(again->spec(), spec);
  const auto mine = named_state(*layer), theirs = named_state(*again);
  ASSERT_EQ(mine.size(), theirs.size());
  for (size_t i = 0; i < mine.size(); ++i) {
    EXPECT_EQ(mine[i].first, theirs[i].first);
    EXPECT_EQ(mine[i].second.sizes(), theirs[i].second.sizes());
  }
}

TEST_P(InjectiveProperties, CloneIsDeep) {
  const auto copy = clone(*layer);
  const auto x = points({3});
  const auto before = layer->forward(x), same = copy->forward(x);
  EXPECT_TRUE(torch::equal(same.value, before.value) && torch::equal(same.log_det, before.log_det));
  {
    torch::NoGradGuard no_grad;
    for (auto& parameter : copy->parameters()) parameter.add_(1);
  }
  EXPECT_TRUE(torch::equal(layer->forward(x).value, before.value));
}

TEST_P(InjectiveProperties, NothingIsEverNaN) {
  for (double scale : {1.0, 30.0, 0.0}) {
    const auto x = (points({64}) * scale).requires_grad_();
    const auto [z, log_det] = layer->forward(x);
    EXPECT_TRUE(log_det.isfinite().all().item<bool>());
    const auto grad = torch::autograd::grad({z.sum() + log_det.sum()}, {x}, {}, {}, false, true)[0];
    if (grad.defined()) EXPECT_FALSE(grad.isnan().any().item<bool>());
  }
}

TEST_P(InjectiveProperties, DensityOnACurveIntegratesToOne) {
  if (layer->codomain().size() != 1 || GetParam().dtype != torch::kFloat64) return;
  Json base = {{"type", "normal"}, {"features", 1}};
  Flow flow(layer, build_distribution(base));
  flow.to(torch::kFloat64);
  torch::NoGradGuard no_grad;
  // The length of the curve comes from its points alone; the density from the middle of each piece.
  const auto z = torch::linspace(-9, 9, 40001, options()).unsqueeze(-1);
  const auto x = flow.to_data(z).value;
  const auto length = (x.slice(0, 1) - x.slice(0, 0, -1)).norm(2, -1);
  const auto middle = 0.5 * (z.slice(0, 1) + z.slice(0, 0, -1));
  const auto log_prob = has_left_inverse() ? flow.log_prob(flow.to_data(middle).value)
                                           : flow.base()->log_prob(middle) - flow.to_data(middle).log_det;
  EXPECT_NEAR((log_prob.exp() * length).sum().item<double>(), 1, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Every, InjectiveProperties, ::testing::ValuesIn(injective_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace diffeo::testing
