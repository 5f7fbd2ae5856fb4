// What matrices and convolutions of full rank promise beyond the laws that every layer keeps.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <chrono>

#include "diffeo/layers/base/affine_map.h"
#include "diffeo/layers/base/constant_log_det_guard.h"
#include "diffeo/layers/base/registry.h"
#include "diffeo/layers/nets/matrix_product.h"

namespace diffeo::testing {
namespace {

LayerPtr perturbed(const Json& spec, double scale, uint64_t seed, torch::Dtype dtype = torch::kFloat64) {
  torch::manual_seed(seed);
  auto layer = build_layer(spec);
  layer->to(dtype);
  torch::NoGradGuard no_grad;
  for (auto& parameter : layer->parameters()) parameter.add_(torch::randn_like(parameter), scale);
  return layer;
}

std::string problem_of(const Json& spec) {
  try {
    build_layer(spec);
  } catch (const SpecError& error) {
    return error.what();
  }
  return "";
}

Tensor jacobian(Layer& layer, const Tensor& point) {
  auto x = point.detach().requires_grad_();
  const auto y = layer.forward(x).value.flatten();
  std::vector<Tensor> rows;
  for (int64_t i = 0; i < y.numel(); ++i) rows.push_back(torch::autograd::grad({y[i]}, {x}, {}, true)[0].flatten());
  return torch::stack(rows);
}

TEST(MatrixProduct, EveryTransposeHasThreeDerivatives) {
  torch::manual_seed(3);
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      for (const bool with_bias : {false, true}) {
        const auto rand = [](int64_t n, int64_t m) { return torch::randn({n, m}, torch::kFloat64).requires_grad_(); };
        const auto a = ta ? rand(4, 3) : rand(3, 4), b = tb ? rand(5, 4) : rand(4, 5);
        const auto bias = with_bias ? torch::randn({5}, torch::kFloat64).requires_grad_() : Tensor();
        // The same scalar of the gradient of a scalar of the gradient, by our node and by LibTorch's.
        const auto derived = [&](auto&& product) {
          std::vector<Tensor> inputs{a, b};
          if (with_bias) inputs.push_back(bias);
          auto value = product().sin();
          for (int order = 0; order < 3; ++order) {
            const auto by = torch::autograd::grad({value.sum()}, inputs, {}, true, true, true);
            value = torch::zeros({}, torch::kFloat64);
            for (size_t i = 0; i < by.size(); ++i)
              if (by[i].defined()) value = value + (by[i] * inputs[i].cos()).sum();
          }
          return value;
        };
        const auto ours = derived([&] { return matrix_product(a, b, ta, tb, bias); });
        const auto theirs = derived([&] {
          const auto c = (ta ? a.t() : a).mm(tb ? b.t() : b);
          return with_bias ? c + bias : c;
        });
        EXPECT_NEAR(ours.item<double>(), theirs.item<double>(), 1e-9 * (1 + std::abs(theirs.item<double>())))
            << ta << tb << with_bias << " seed 3";
      }
}

TEST(MatrixProduct, TakesAnyStrides) {
  torch::manual_seed(4);
  for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
    const auto wide = torch::randn({6, 20}, dtype), b = torch::randn({5, 7}, dtype);
    const auto part = wide.slice(1, 2, 12, 2), flat = torch::randn({1, 5}, dtype).expand({6, 5});
    EXPECT_TRUE(torch::allclose(matrix_product(part, b), part.contiguous().mm(b), 1e-5, 1e-5));
    EXPECT_TRUE(torch::allclose(matrix_product(flat, b), flat.contiguous().mm(b), 1e-5, 1e-5));
    EXPECT_EQ(matrix_product(part.slice(0, 0, 0), b).sizes(), at::IntArrayRef({0, 7}));
  }
}

TEST(FullRank, MatricesStartWhereTheyAreTold) {
  torch::manual_seed(5);
  const auto x = torch::randn({4, 6});
  const auto start = [&](const char* name) {
    return build_layer({{"type", "dense_linear"}, {"features", 6}, {"start", name}});
  };
  EXPECT_TRUE(torch::equal(start("identity")->forward(x).value, x));
  EXPECT_TRUE(torch::equal(start("minus_identity")->forward(x).value, -x));
  const auto rotation = start("rotation")->parameters()[0].detach();
  EXPECT_TRUE(torch::allclose(rotation.mm(rotation.t()), torch::eye(6), 1e-5, 1e-5));
  EXPECT_NEAR(torch::linalg_det(rotation).item<double>(), 1, 1e-4);
  EXPECT_NE(problem_of({{"type", "dense_linear"}, {"features", 6}, {"start", "rotated"}}).find("start"),
            std::string::npos);
  EXPECT_NE(problem_of({{"type", "dense_linear"}, {"features", 0}}).find("features"), std::string::npos);
}

TEST(FullRank, FactorsFollowTheParametersHoweverTheyAreChanged) {
  for (const Json& spec : {Json{{"type", "dense_linear"}, {"features", 4}},
                           Json{{"type", "convolution"}, {"channels", 1}, {"height", 2}, {"width", 2}}}) {
    const auto layer = perturbed(spec, 0.3, 6);
    torch::NoGradGuard no_grad;
    const auto x = torch::randn(layer->domain().event, torch::kFloat64);
    const auto check = [&] {
      Tensor want;
      {
        const torch::AutoGradMode with_gradients(true);
        want = std::get<1>(torch::linalg_slogdet(jacobian(*layer, x)));
      }
      EXPECT_NEAR(layer->forward(x).log_det.item<double>(), want.item<double>(), 1e-10);
      EXPECT_TRUE(torch::allclose(layer->inverse(layer->forward(x).value).value, x, 1e-9, 1e-9));
    };
    check();
    auto weight = layer->parameters()[0];
    weight.mul_(1.3);
    check();
    // As an optimiser does it: the version of the parameter does not change.
    const auto flat = weight.flatten().clone();
    weight.set_data(flat.view(weight.sizes()));
    check();
    flat.mul_(0.8);
    check();
  }
}

TEST(FullRank, ASingularMatrixHasNoDensityAndSaysSo) {
  const auto layer = build_layer({{"type", "dense_linear"}, {"features", 2}});
  torch::NoGradGuard no_grad;
  layer->parameters()[0].fill_(1);
  EXPECT_EQ(layer->forward(torch::zeros({3, 2})).log_det.max().item<double>(),
            -std::numeric_limits<double>::infinity());
}

TEST(FullRank, WithoutLogDetsAWideMatrixIsNotFactorised) {
  const auto layer = build_layer({{"type", "dense_linear"}, {"features", 1024}});
  const auto x = torch::randn({2, 1024});
  const auto seconds = [&](auto&& run) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  double with = 1e9, without = 1e9;
  for (int i = 0; i < 3; ++i) {
    with = std::min(with, seconds([&] { layer->forward(x); }));
    without = std::min(without, seconds([&] {
                         const ConstantLogDetGuard guard;
                         layer->forward(x);
                       }));
  }
  EXPECT_LT(without, with / 3);
}

const std::vector<Json> convolutions{
    {{"type", "convolution"}, {"channels", 2}, {"height", 3}, {"width", 4}},
    {{"type", "convolution"}, {"channels", 1}, {"height", 4}, {"width", 3}, {"kernel", 5}, {"bias", false}},
    {{"type", "convolution"},
     {"channels", 3},
     {"height", 2},
     {"width", 2},
     {"kernel", 1},
     {"start", "minus_identity"}}};

TEST(Convolution, IsABijectionWithAnHonestLogDet) {
  for (const auto& spec : convolutions)
    for (const bool graph : {false, true}) {
      const auto layer = perturbed(spec, 0.15, 7);
      const torch::AutoGradMode mode(graph);
      for (const auto& batch : std::vector<std::vector<int64_t>>{{}, {1}, {5}, {3, 2}, {0}}) {
        auto shape = batch;
        shape.insert(shape.end(), layer->domain().event.begin(), layer->domain().event.end());
        const auto x = torch::randn(shape, torch::kFloat64);
        const auto there = layer->forward(x), back = layer->inverse(there.value);
        EXPECT_EQ(there.log_det.sizes(), at::IntArrayRef(batch));
        EXPECT_TRUE(torch::allclose(back.value, x, 1e-9, 1e-9)) << spec;
        EXPECT_TRUE(torch::allclose(back.log_det, -there.log_det, 1e-9, 1e-9)) << spec;
      }
      const auto x = torch::randn(layer->domain().event, torch::kFloat64);
      Tensor want;
      {
        const torch::AutoGradMode with_gradients(true);
        want = std::get<1>(torch::linalg_slogdet(jacobian(*layer, x)));
      }
      EXPECT_NEAR(layer->forward(x).log_det.item<double>(), want.item<double>(), 1e-10) << spec;
    }
}

TEST(Convolution, StridesAndBatchesDoNotMatter) {
  for (const auto& spec : convolutions) {
    const auto layer = perturbed(spec, 0.15, 8);
    auto shape = layer->domain().event;
    shape.insert(shape.begin(), 6);
    const auto x = torch::randn(shape, torch::kFloat64);
    const auto want = layer->forward(x).value;
    for (const auto& view :
         {x.permute({3, 2, 1, 0}).contiguous().permute({3, 2, 1, 0}), torch::stack({x, x}, -1).select(-1, 1)})
      EXPECT_TRUE(torch::allclose(layer->forward(view).value, want, 1e-12, 1e-12));
    for (int64_t i = 0; i < 6; ++i) EXPECT_TRUE(torch::allclose(layer->forward(x[i]).value, want[i], 1e-12, 1e-12));
  }
}

TEST(Convolution, GradientsAgreeWithDifferences) {
  for (const auto& spec : convolutions) {
    const auto layer = perturbed(spec, 0.15, 9);
    auto shape = layer->domain().event;
    shape.insert(shape.begin(), 3);
    const auto x = torch::randn(shape, torch::kFloat64);
    for (const bool inverse : {false, true}) {
      const auto loss = [&] {
        const auto [y, log_det] = inverse ? layer->inverse(x) : layer->forward(x);
        return y.sin().sum() + log_det.square().sum();
      };
      const auto grads = torch::autograd::grad({loss()}, layer->parameters());
      for (size_t i = 0; i < grads.size(); ++i) {
        torch::NoGradGuard no_grad;
        auto parameter = layer->parameters()[i];
        const auto direction = torch::randn_like(parameter);
        const auto at = [&](double step) {
          parameter.add_(direction, step);
          const double value = loss().item<double>();
          parameter.sub_(direction, step);
          return value;
        };
        const double slope = (grads[i] * direction).sum().item<double>();
        EXPECT_NEAR((at(1e-6) - at(-1e-6)) / 2e-6, slope, 1e-5 * (1 + std::abs(slope))) << spec << " seed 9";
      }
    }
  }
}

TEST(Convolution, AnEvenKernelIsRefused) {
  EXPECT_NE(problem_of({{"type", "convolution"}, {"channels", 1}, {"height", 2}, {"width", 2}, {"kernel", 2}})
                .find("must be odd"),
            std::string::npos);
}

TEST(SmoothLeakyRelu, TheInverseIsExactAndSmooth) {
  for (const Json& map : {Json{{"type", "smooth_leaky_relu"}}, Json{{"type", "smooth_leaky_relu"}, {"slope", 0.01}},
                          Json{{"type", "smooth_leaky_relu"}, {"slope", 1.0}},
                          Json{{"type", "smooth_leaky_relu"}, {"slope", 5.0}, {"residual", true}}}) {
    const auto layer = build_layer({{"type", "elementwise"}, {"features", 1}, {"map", map}});
    layer->to(torch::kFloat64);
    const auto x = torch::linspace(-200, 200, 4001, torch::kFloat64).view({-1, 1});
    const auto y = layer->forward(x).value;
    EXPECT_LT(((layer->inverse(y).value - x).abs() / (1 + x.abs())).max().item<double>(), 1e-13) << map;
    // First and second derivatives of the inverse.
    auto point = torch::linspace(-6, 6, 25, torch::kFloat64).view({-1, 1}).requires_grad_();
    const auto back = layer->inverse(point);
    const auto first = torch::autograd::grad({back.value.sum()}, {point}, {}, true, true)[0];
    EXPECT_TRUE(torch::allclose(first.log().squeeze(1), back.log_det, 1e-12, 1e-12)) << map;
    if (!first.requires_grad()) continue;
    const auto second = torch::autograd::grad({first.sum()}, {point})[0];
    const double step = 1e-5;
    const auto slope = [&](double shift) {
      const auto moved = (point.detach() + shift);
      return layer->inverse(moved).log_det.exp().unsqueeze(1);
    };
    EXPECT_TRUE(torch::allclose(second, (slope(step) - slope(-step)) / (2 * step), 1e-7, 1e-7)) << map;
  }
  EXPECT_THROW(build_univariate({{"type", "smooth_leaky_relu"}, {"slope", 0.0}}), SpecError);
}

TEST(SmoothLeakyRelu, TheKernelAndItsDerivativesAreThoseOfTheFormula) {
  torch::manual_seed(11);
  for (const auto dtype : {torch::kFloat32, torch::kFloat64})
    for (const auto& [slope, residual] : {std::pair{0.3, false}, {0.3, true}, {3.0, false}, {1e-3, false}})
      for (const int64_t columns : {1, 7, 16, 531}) {
        const auto said = c10::str(dtype, " slope ", slope, " columns ", columns, " seed 11");
        const auto map = build_univariate({{"type", "smooth_leaky_relu"}, {"slope", slope}, {"residual", residual}});
        const double below = slope + (residual ? 1 : 0), bend = 1 - slope;
        const auto formula = [&](const Tensor& x) -> Mapped {
          const auto value = below * x + bend * torch::logaddexp(x, torch::zeros_like(x));
          return {value, (below + bend * torch::sigmoid(x)).log().sum(-1)};
        };
        const auto given = 8 * torch::randn({2, 5, columns}, torch::kFloat64);
        const auto weight = torch::randn_like(given), by_log_det = torch::randn({2, 5}, torch::kFloat64),
                   along = torch::randn_like(given), across = torch::randn_like(given);
        // Value, log_det, and derivatives of weighted sums of them: the first, along a vector the second and third.
        const auto all = [&](const auto& of, torch::Dtype in) {
          const auto x = given.to(in).requires_grad_(), g = weight.to(in).requires_grad_(),
                     l = by_log_det.to(in).requires_grad_();
          const auto mapped = of(x);
          const auto loss = (mapped.value * g).sum() + (mapped.log_det * l).sum();
          const auto first = torch::autograd::grad({loss}, {x}, {}, true, true)[0];
          const auto second = torch::autograd::grad({(first * along.to(in)).sum()}, {x, g, l}, {}, true, true);
          const auto third = torch::autograd::grad({(second[0] * across.to(in)).sum()}, {x, g, l}, {}, true);
          // Without a graph of their own, derivatives come from the kernel to the end.
          const auto plain = torch::autograd::grad({(first * along.to(in)).sum()}, {x, g, l}, {}, true);
          return std::vector<Tensor>{mapped.value, mapped.log_det, first,    second[0], second[1], second[2],
                                     third[0],     third[1],       third[2], plain[0],  plain[1],  plain[2]};
        };
        const auto ours = all([&](const Tensor& x) { return map->forward(x, {}); }, dtype);
        const auto want = all(formula, torch::kFloat64);
        const double tolerance = dtype == torch::kFloat32 ? 2e-4 : 1e-11;
        for (size_t i = 0; i < want.size(); ++i)
          EXPECT_LT(((ours[i].to(torch::kFloat64) - want[i]).abs() / (1 + want[i].abs())).max().item<double>(),
                    tolerance)
              << said << " result " << i;
      }
  const auto map = build_univariate({{"type", "smooth_leaky_relu"}});
  const auto far = torch::tensor({-1e30f, -200.0f, 0.0f, 200.0f, 1e30f}).unsqueeze(1);
  const auto [value, log_det] = map->forward(far, {});
  EXPECT_TRUE(value.isfinite().all().item<bool>() && log_det.isfinite().all().item<bool>());
  EXPECT_TRUE(map->forward(torch::full({1, 3}, NAN), {}).value.isnan().all().item<bool>());
  EXPECT_EQ(map->forward(torch::zeros({0, 3}), {}).log_det.sizes(), at::IntArrayRef({0}));
}

TEST(DenseLinear, ItsPartsAreThoseOfItsMap) {
  torch::manual_seed(12);
  const auto layer = build_layer({{"type", "dense_linear"}, {"features", 4}, {"start", "rotation"}});
  layer->to(torch::kFloat64);
  {
    torch::NoGradGuard no_grad;
    for (auto& parameter : layer->parameters()) parameter.add_(torch::randn_like(parameter), 0.3);
  }
  auto& affine = dynamic_cast<AffineMap&>(*layer);
  const auto x = torch::randn({2, 3, 4}, torch::kFloat64).requires_grad_(),
             u = torch::randn({2, 3, 4}, torch::kFloat64);
  const auto y = layer->forward(x).value;
  EXPECT_TRUE(torch::allclose(affine.linear(x) + affine.offset(), y, 1e-12, 1e-12));
  EXPECT_TRUE(torch::allclose(affine.transposed(u), torch::autograd::grad({(y * u).sum()}, {x})[0], 1e-12, 1e-12));
}

}  // namespace
}  // namespace diffeo::testing
