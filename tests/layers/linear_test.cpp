// What the linear layers and permutations promise beyond the laws that every layer keeps.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "diffeo/layers/base/registry.h"

namespace diffeo::testing {
namespace {

/// The matrix of a linear layer without bias.
Tensor matrix_of(Layer& layer) {
  const auto axes = torch::eye(layer.domain().size(), layer.tensor_options());
  const auto zero = torch::zeros_like(axes);
  return (layer.forward(axes).value - layer.forward(zero).value).t();
}

void perturb(Layer& layer, double scale) {
  torch::NoGradGuard no_grad;
  for (auto& parameter : layer.parameters()) parameter.add_(torch::randn_like(parameter), scale);
}

TEST(Linear, EveryKindStartsAtTheIdentity) {
  torch::manual_seed(1);
  const auto x = torch::randn({8, 6});
  for (const auto* text : {R"({"type": "lu_linear", "features": 6})", R"({"type": "qr_linear", "features": 6})",
                           R"({"type": "orthogonal", "features": 6})", R"({"type": "rotation", "features": 6})",
                           R"({"type": "orthogonal", "features": 6, "kind": "exponential"})"}) {
    const auto [y, log_det] = build_layer(Json::parse(text))->forward(x);
    EXPECT_TRUE(torch::allclose(y, x, 1e-5, 1e-5)) << text;
    EXPECT_TRUE(torch::allclose(log_det, torch::zeros(8), 0, 1e-5)) << text;
  }
}

TEST(Linear, OrthogonalMatricesAreOrthogonalInSinglePrecisionWhateverTheirParameters) {
  for (const auto* text :
       {R"({"type": "orthogonal", "features": 64})", R"({"type": "orthogonal", "features": 64, "reflections": 7})",
        R"({"type": "orthogonal", "features": 64, "kind": "exponential"})",
        R"({"type": "rotation", "features": 64})"}) {
    for (double scale : {0.01, 1.0, 30.0}) {
      torch::manual_seed(2);
      const auto layer = build_layer(Json::parse(text));
      perturb(*layer, scale);
      const auto q = matrix_of(*layer).detach();
      const auto error = (q.mm(q.t()) - torch::eye(64)).abs().max().item<double>();
      EXPECT_LT(error, scale > 1 ? 1e-4 : 1e-5) << text << " seed 2, parameters of size " << scale;
    }
  }
}

TEST(Linear, AVectorOfZerosReflectsNothing) {
  const auto layer = build_layer({{"type", "orthogonal"}, {"features", 3}});
  {
    torch::NoGradGuard no_grad;
    for (auto& parameter : layer->parameters()) parameter.zero_();
  }
  const auto x = torch::randn({4, 3});
  EXPECT_TRUE(torch::equal(layer->forward(x).value, x));
  layer->forward(x).value.sum().backward();
  EXPECT_TRUE(layer->parameters()[0].grad().isfinite().all().item<bool>());
}

TEST(Linear, NoParameterValueMakesATriangularLayerSingular) {
  torch::manual_seed(3);
  for (const auto* type : {"lu_linear", "qr_linear"}) {
    const auto layer = build_layer({{"type", type}, {"features", 3}});
    for (double value : {-1e4, -30.0, 1e4}) {
      torch::NoGradGuard no_grad;
      layer->parameters()[0].diagonal().fill_(value);
      const auto x = torch::randn({5, 3});
      const auto [y, log_det] = layer->forward(x);
      EXPECT_TRUE(y.isfinite().all().item<bool>() && log_det.isfinite().all().item<bool>()) << type << " " << value;
      EXPECT_TRUE(torch::allclose(layer->inverse(y).value, x, 1e-3, 1e-2)) << type << " " << value;
    }
  }
}

TEST(Linear, TheStandardNumberOfReflectionsIsEvenAndUpToTheFeatures) {
  for (auto [features, want] : {std::pair<int64_t, int64_t>{2, 2}, {5, 4}, {6, 6}})
    EXPECT_EQ(build_layer({{"type", "orthogonal"}, {"features", features}})->parameters()[0].size(0), want);
}

TEST(Linear, AFixedRotationLearnsNothingAndComesFromItsSeed) {
  Json spec = {{"type", "rotation"}, {"features", 7}, {"start", "random"}, {"seed", 4}, {"trainable", false}};
  const auto layer = build_layer(spec);
  EXPECT_TRUE(layer->parameters().empty());
  EXPECT_TRUE(torch::equal(matrix_of(*layer), matrix_of(*build_layer(spec))));
  spec["seed"] = 5;
  EXPECT_FALSE(torch::allclose(matrix_of(*layer), matrix_of(*build_layer(spec)), 1e-2, 1e-2));
  EXPECT_GT((matrix_of(*layer) - torch::eye(7)).abs().max().item<double>(), 0.1);
}

TEST(Permutation, MovesEachFeatureWhereTheOrderSays) {
  const auto x = torch::tensor({{10., 11., 12.}}, torch::kDouble);
  const auto moved = [&](const Json& options) {
    Json spec = {{"type", "permutation"}, {"features", 3}};
    spec.update(options);
    const auto layer = build_layer(spec);
    layer->to(torch::kDouble);
    return layer->forward(x).value;
  };
  EXPECT_TRUE(torch::equal(moved(Json::object()), torch::tensor({{12., 11., 10.}}, torch::kDouble)));
  EXPECT_TRUE(
      torch::equal(moved({{"kind", "fixed"}, {"order", {2, 0, 1}}}), torch::tensor({{12., 10., 11.}}, torch::kDouble)));
}

TEST(Permutation, RandomOrdersAreTheSameOnEveryMachine) {
  const auto layer = build_layer({{"type", "permutation"}, {"features", 6}, {"kind", "random"}, {"seed", 11}});
  const auto order = layer->forward(torch::arange(6, torch::kFloat)).value;
  // Made once by a Python program of the same shuffle on its own 64-bit Mersenne twister.
  EXPECT_TRUE(torch::equal(order, torch::tensor({2.0, 4.0, 5.0, 1.0, 0.0, 3.0}, torch::kFloat))) << order;
}

TEST(Permutation, WrongOptionsAreRefused) {
  const auto message = [](const Json& options) {
    Json spec = {{"type", "permutation"}, {"features", 3}};
    spec.update(options);
    try {
      build_layer(spec);
    } catch (const SpecError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message({{"features", 0}}), "features: must be at least 1, got 0");
  EXPECT_EQ(message({{"kind", "fixed"}, {"order", {0, 1, 1}}}), "order: expected each of 0 ... 2 once, got [0,1,1]");
  EXPECT_EQ(message({{"order", {0, 1, 2}}}), "order: is only for kind fixed, not reverse");
  EXPECT_EQ(message({{"axis", {1.0, 0.0}}}), "axis: expected lower < upper, got [1.0,0.0]");
  EXPECT_EQ(message({{"axis", "line"}}), "axis: expected null, [lower, upper] or \"circle\", got \"line\"");
}

}  // namespace
}  // namespace diffeo::testing
