// Every registered layer, in every precision, must be a bijection with an honest log-determinant.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <numeric>

#include "diffeo/layers/base/penalty.h"
#include "properties/cases.h"

namespace diffeo::testing {
namespace {

class LayerProperties : public ::testing::TestWithParam<Case> {
 protected:
  LayerProperties() : layer(build(GetParam())), tolerance(testing::tolerance(GetParam().dtype)) {}

  torch::TensorOptions options() const { return torch::TensorOptions(GetParam().dtype).device(GetParam().device); }
  Tensor points(std::vector<int64_t> batch) const { return points_in(layer->domain(), std::move(batch), options()); }
  Tensor context(std::vector<int64_t> batch) const {
    if (layer->context_size() == 0) return {};
    batch.push_back(layer->context_size());
    return torch::randn(batch, options());
  }
  void expect_close(const Tensor& got, const Tensor& want, double looser = 1) const {
    ASSERT_EQ(got.sizes(), want.sizes());
    EXPECT_EQ(got.scalar_type(), want.scalar_type());
    EXPECT_TRUE(torch::allclose(got, want, looser * tolerance, looser * tolerance))
        << "largest difference " << (got - want).abs().max() << "\ngot " << got << "\nwant " << want;
  }
  /// d value / d input of one point, rows of a matrix.
  static Tensor jacobian(const Tensor& value, const Tensor& input) {
    std::vector<Tensor> rows;
    const auto flat = value.flatten();
    for (int64_t i = 0; i < flat.numel(); ++i)
      rows.push_back(torch::autograd::grad({flat[i]}, {input}, {}, true)[0].flatten());
    return torch::stack(rows);
  }
  /// The same layer in double precision, with the same parameter values.
  LayerPtr in_double() const {
    auto copy = clone(*layer);
    copy->to(torch::kFloat64);
    return copy;
  }
  /// The same points with the order of all dimensions turned round in memory.
  static Tensor backwards_in_memory(const Tensor& x) {
    std::vector<int64_t> order(x.dim());
    std::iota(order.rbegin(), order.rend(), 0);
    return x.permute(order).contiguous().permute(order);
  }
  static Tensor as_double(const Tensor& x) { return x.defined() ? x.to(torch::kFloat64) : x; }

  LayerPtr layer;
  double tolerance;
};

TEST_P(LayerProperties, InverseUndoesForward) {
  for (auto batch : std::vector<std::vector<int64_t>>{{}, {1}, {16}, {3, 4}, {0}}) {
    const auto x = points(batch), c = context(batch);
    const auto there = layer->forward(x, c);
    const auto back = layer->inverse(there.value, c);
    EXPECT_EQ(there.log_det.sizes(), at::IntArrayRef(batch));
    expect_close(back.value, x);
    expect_close(back.log_det, -there.log_det, 10);
  }
}

TEST_P(LayerProperties, LogDetIsThatOfTheJacobianInBothDirections) {
  const auto exact = in_double();
  for (int trial = 0; trial < 8; ++trial) {
    const auto x = points({}), c = context({});
    const auto there = layer->forward(x, c);
    const auto x64 = as_double(x).requires_grad_();
    const auto y64 = exact->forward(x64, as_double(c)).value;
    expect_close(there.log_det.detach().to(torch::kFloat64), std::get<1>(torch::linalg_slogdet(jacobian(y64, x64))));
    const auto y = y64.detach().requires_grad_();
    const auto back = exact->inverse(y, as_double(c));
    EXPECT_NEAR(back.log_det.item<double>(), std::get<1>(torch::linalg_slogdet(jacobian(back.value, y))).item<double>(),
                1e-7);
  }
}

TEST_P(LayerProperties, ABatchIsItsPointsOneByOne) {
  const auto x = points({5}), c = context({5});
  const auto all = layer->forward(x, c);
  for (int64_t i = 0; i < 5; ++i) {
    const auto one = layer->forward(x[i], c.defined() ? c[i] : c);
    expect_close(one.value, all.value[i]);
    expect_close(one.log_det, all.log_det[i]);
  }
}

TEST_P(LayerProperties, ThreadsDoNotMatter) {
  const int before = at::get_num_threads();
  const auto x = points({1100}), c = context({1100});
  const auto results = [&](int threads) {
    at::set_num_threads(threads);
    const auto input = x.detach().requires_grad_();
    const auto there = layer->forward(input, c);
    auto wanted = layer->parameters();
    wanted.push_back(input);
    auto found = torch::autograd::grad({there.value.sum() + there.log_det.sum()}, wanted, {}, {}, false, true);
    const torch::NoGradGuard no_grad;
    const auto back = layer->inverse(there.value.detach(), c);
    found.insert(found.end(), {there.value.detach(), there.log_det.detach(), back.value, back.log_det});
    at::set_num_threads(before);
    return found;
  };
  const auto one = results(1), three = results(3);
  for (size_t i = 0; i < one.size(); ++i) {
    if (!one[i].defined()) continue;
    // Sums over the rows may be taken in another order.
    const double scale = std::max(1.0, one[i].abs().max().item<double>());
    EXPECT_LE((three[i] - one[i]).abs().max().item<double>(), 10 * tolerance * scale) << "result " << i;
  }
}

TEST_P(LayerProperties, StridesDoNotMatter) {
  const auto x = points({6}), c = context({6});
  const auto want = layer->forward(x, c);
  const auto backwards = layer->inverse(want.value, c);
  for (const auto& view : {backwards_in_memory(x), torch::stack({x, x}, -1).select(-1, 1),
                           torch::cat({x, x}, -1).narrow(-1, x.size(-1), x.size(-1))}) {
    const auto got = layer->forward(view, c);
    expect_close(got.value, want.value);
    expect_close(got.log_det, want.log_det);
  }
  expect_close(layer->inverse(backwards_in_memory(want.value.detach()), c).value, backwards.value);
  const auto one = points({1}), one_c = context({1});
  const auto four = [](const Tensor& single) {
    auto shape = single.sizes().vec();
    shape[0] = 4;
    return single.expand(shape);
  };
  expect_close(layer->forward(four(one), one_c).value, four(layer->forward(one, one_c).value));
}

TEST_P(LayerProperties, WrongArgumentsAreRefused) {
  const auto other = GetParam().dtype == torch::kFloat32 ? torch::kFloat64 : torch::kFloat32;
  auto wrong = layer->domain().event;
  wrong.insert(wrong.begin(), 2);
  wrong.back() += 96;
  EXPECT_THROW(layer->forward(torch::zeros(wrong, options()), context({2})), Error);
  EXPECT_THROW(layer->forward(points({2}).to(other), context({2})), Error);
  EXPECT_THROW(layer->forward(points({2}), layer->context_size() ? Tensor() : torch::zeros({2, 1}, options())), Error);
  if (layer->context_size() > 0) {
    EXPECT_THROW(layer->forward(points({2}), context({3})), Error);
  }
}

TEST_P(LayerProperties, GradientsReachEveryParameterAndAgreeWithDifferences) {
  const auto exact = in_double();
  const auto x = as_double(points({32})), c = as_double(context({32}));
  const auto loss = [&] {
    const Penalties penalties;  // what trains a layer without being seen in its value counts too
    const auto [y, log_det] = exact->forward(x, c);
    const auto flat = y.flatten(1);
    const auto seen = (flat.sin() * torch::arange(1, flat.size(1) + 1, y.options())).sum() + log_det.square().sum();
    return penalties.sum().defined() ? seen + penalties.sum() : seen;
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

TEST_P(LayerProperties, SecondDerivativesAgreeWithDifferences) {
  const auto exact = in_double();
  auto x = as_double(points({4})).requires_grad_();
  const auto c = as_double(context({4}));
  const auto slope = [&](const Tensor& at) {
    const auto [y, log_det] = exact->forward(at, c);
    const auto total = y.sin().sum() + log_det.square().sum();
    return torch::autograd::grad({total}, {at}, {}, true, true)[0];
  };
  const auto direction = torch::randn_like(x), weights = torch::randn_like(x);
  const auto first = slope(x);
  if (!first.requires_grad()) return;  // a linear layer with a constant log_det
  const auto second = torch::autograd::grad({(first * weights).sum()}, {x}, {}, {}, false, true)[0];
  const double step = 1e-6;
  const auto up = slope((x + step * direction).detach().requires_grad_()),
             down = slope((x - step * direction).detach().requires_grad_());
  const double want = ((up - down) * weights).sum().item<double>() / (2 * step);
  const double got = second.defined() ? (second * direction).sum().item<double>() : 0.0;
  EXPECT_NEAR(got, want, 1e-4 * (1 + std::abs(want)));
}

TEST_P(LayerProperties, SpecRebuildsTheLayer) {
  const auto spec = layer->spec();
  const auto again = build_layer(spec);
  EXPECT_EQ(again->spec(), spec);
  EXPECT_EQ(spec["type"], GetParam().spec["type"]);
  const auto mine = named_state(*layer), theirs = named_state(*again);
  ASSERT_EQ(mine.size(), theirs.size());
  for (size_t i = 0; i < mine.size(); ++i) {
    EXPECT_EQ(mine[i].first, theirs[i].first);
    EXPECT_EQ(mine[i].second.sizes(), theirs[i].second.sizes());
  }
}

TEST_P(LayerProperties, CloneIsDeep) {
  const auto copy = clone(*layer);
  const auto x = points({3}), c = context({3});
  const auto before = layer->forward(x, c);
  {
    const auto same = copy->forward(x, c);
    EXPECT_TRUE(torch::equal(same.value, before.value) && torch::equal(same.log_det, before.log_det));
    torch::NoGradGuard no_grad;
    for (auto& parameter : copy->parameters()) parameter.add_(1);
  }
  EXPECT_TRUE(torch::equal(layer->forward(x, c).value, before.value));
}

TEST_P(LayerProperties, NothingIsEverNaN) {
  // Far beyond where any layer is meant to work: values may saturate, gradients must stay numbers.
  for (double scale : {1.0, 30.0}) {
    auto x = points({64});
    for (int64_t i = 0; i < layer->domain().size(); ++i)
      if (!layer->domain().axes[i].bounded()) x.view({64, -1}).select(-1, i).mul_(scale);
    x.requires_grad_();
    const auto [y, log_det] = layer->forward(x, context({64}));
    EXPECT_TRUE(log_det.isfinite().all().item<bool>());
    const auto grad = torch::autograd::grad({y.sum() + log_det.sum()}, {x}, {}, {}, false, true)[0];
    if (grad.defined()) EXPECT_FALSE(grad.isnan().any().item<bool>());
  }
}

INSTANTIATE_TEST_SUITE_P(Every, LayerProperties, ::testing::ValuesIn(every_case()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace diffeo::testing
