// Masked networks and the layers made of them: who sees whom.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "diffeo/layers/base/registry.h"
#include "diffeo/layers/nets/made.h"

namespace diffeo {
namespace {

constexpr int64_t seed = 11;

/// d outputs / d input, (outputs, inputs), at a random point.
Tensor jacobian(const Tensor& outputs, const Tensor& input) {
  std::vector<Tensor> rows;
  for (int64_t i = 0; i < outputs.numel(); ++i) {
    const auto row = torch::autograd::grad({outputs[i]}, {input}, {}, true, false, true)[0];
    rows.push_back(row.defined() ? row : torch::zeros_like(input));
  }
  return torch::stack(rows);
}

void shake(Module& module) {
  torch::NoGradGuard no_grad;
  for (auto& parameter : module.parameters()) parameter.add_(torch::randn_like(parameter), 0.5);
}

TEST(Made, OutputsSeeTheFeaturesBeforeThemAndTheContext) {
  torch::manual_seed(seed);
  for (const std::string type : {"mlp", "residual"}) {
    for (const std::string order : {"natural", "reverse", "random"}) {
      for (int64_t context : {0, 2}) {
        for (bool periodic : {false, true}) {
          SCOPED_TRACE(c10::str(type, " ", order, " context ", context, periodic ? " periodic" : "", " seed ", seed));
          const MadeShape shape{feature_degrees(order, 4, 1), context, 3, periodic};
          const NetOptions options{
              .type = type, .width = 24, .activation = "tanh", .dropout = 0.2, .batch_norm = type == "residual"};
          const auto net = build_made(options, shape);
          net->to(torch::kDouble);
          net->eval();
          shake(*net);
          const auto x = torch::randn({4}, torch::kDouble).requires_grad_();
          const auto c = context > 0 ? torch::randn({context}, torch::kDouble).requires_grad_() : Tensor();
          const auto outputs = net->forward(x, c);
          ASSERT_EQ(outputs.sizes(), at::IntArrayRef({12}));
          const auto slopes = jacobian(outputs, x);
          for (int64_t i = 0; i < 12; ++i)
            for (int64_t j = 0; j < 4; ++j)
              EXPECT_EQ(slopes[i][j].item<double>() != 0, shape.degrees[j] < shape.degrees[i / 3]) << i << " " << j;
          if (context > 0) {
            EXPECT_TRUE((jacobian(outputs, c) != 0).all().item<bool>());
          }
        }
      }
    }
  }
}

TEST(Made, StartsAtTheBias) {
  torch::manual_seed(seed);
  for (const std::string type : {"mlp", "residual"}) {
    for (int64_t depth : {0, 1, 2}) {
      const std::vector<double> bias{1, 2, 3, 4, 5, 6};
      const NetOptions options{.type = type, .width = 8, .depth = depth, .init_scale = 0};
      const auto net = build_made(options, {feature_degrees("natural", 3, 0), 2, 2}, bias);
      const auto outputs = net->forward(torch::randn({5, 3}), torch::zeros({5, 2}));
      EXPECT_TRUE(torch::equal(outputs, torch::tensor(bias, torch::kFloat).expand({5, 6}))) << type << depth << outputs;
    }
  }
}

TEST(Made, OneFeatureSeesTheContextOnly) {
  torch::manual_seed(seed);
  const auto net = build_made({.width = 8}, {{1}, 2, 3});
  const auto c = torch::randn({4, 2});
  EXPECT_TRUE(torch::equal(net->forward(torch::randn({4, 1}), c), net->forward(torch::randn({4, 1}), c)));
  EXPECT_FALSE(torch::equal(net->forward(torch::zeros({4, 1}), c), net->forward(torch::zeros({4, 1}), c + 1)));
  const auto constant = build_made({.width = 8}, {{1}, 0, 2}, {3, 4});
  EXPECT_TRUE(torch::equal(constant->forward(torch::randn({4, 1})), torch::tensor({3.0F, 4.0F}).expand({4, 2})));
}

TEST(Made, HiddenUnitsAreSortedByDegree) {
  const auto net = build_made({.width = 7, .depth = 1}, {feature_degrees("natural", 4, 0), 0, 1});
  // Degrees 1 1 1 2 2 3 3: a column of the first mask is 1 from the feature's degree on.
  const auto mask = net->named_buffers()["0.mask"];
  const auto want = torch::tensor({7, 4, 2, 0}, torch::kFloat);
  EXPECT_TRUE(torch::equal(mask.sum(0), want)) << mask;
  EXPECT_TRUE((mask.diff(1, 0) >= 0).all().item<bool>()) << mask;
}

TEST(Made, DegreesOfARandomOrderDependOnTheSeedOnly) {
  EXPECT_EQ(feature_degrees("natural", 3, 0), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(feature_degrees("reverse", 3, 0), (std::vector<int64_t>{3, 2, 1}));
  auto degrees = feature_degrees("random", 20, 7);
  EXPECT_EQ(degrees, feature_degrees("random", 20, 7));
  EXPECT_NE(degrees, feature_degrees("random", 20, 8));
  std::sort(degrees.begin(), degrees.end());
  EXPECT_EQ(degrees, feature_degrees("natural", 20, 0));
  EXPECT_THROW(feature_degrees("sideways", 3, 0), SpecError);
}

TEST(Made, BatchesOfOneRowAndOfNoneTrain) {
  torch::manual_seed(seed);
  for (bool masked : {true, false}) {
    const NetOptions options{.type = "residual", .width = 8, .batch_norm = true};
    const auto net = masked ? build_made(options, {{1, 2, 3}, 0, 2}) : build_net(options, 3, 0, 6);
    net->train();
    for (int64_t rows : {0, 1, 2}) {
      const auto outputs = net->forward(torch::randn({rows, 3}));
      EXPECT_EQ(outputs.sizes(), at::IntArrayRef({rows, 6}));
      EXPECT_TRUE(outputs.isfinite().all().item<bool>());
    }
  }
}

TEST(Autoregressive, JacobianIsTriangularInItsOrder) {
  torch::manual_seed(seed);
  const auto layer = build_layer({{"type", "autoregressive"},
                                  {"features", 4},
                                  {"order", "random"},
                                  {"order_seed", 2},
                                  {"net", {{"width", 16}, {"activation", "tanh"}}}});
  layer->to(torch::kDouble);
  shake(*layer);
  const auto degrees = feature_degrees("random", 4, 2);
  const auto x = torch::randn({4}, torch::kDouble).requires_grad_();
  const auto slopes = jacobian(layer->forward(x).value, x);
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t j = 0; j < 4; ++j) EXPECT_EQ(slopes[i][j].item<double>() != 0, degrees[j] <= degrees[i]) << i << j;
}

TEST(Autoregressive, MapsItCannotInvertAreRefused) {
  const auto message = [](const Json& map) -> std::string {
    try {
      build_layer({{"type", "autoregressive"}, {"features", 3}, {"map", map}});
    } catch (const SpecError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({{"type", "affine"}, {"volume_preserving", true}}).substr(0, 25), "map: couples the features");
  EXPECT_EQ(message({{"type", "exp"}}), "map: has no parameters for the network to make; use elementwise");
}

TEST(Elementwise, AContextNeedsParametersToChange) {
  EXPECT_THROW(build_layer({{"type", "elementwise"}, {"features", 2}, {"context", 1}, {"map", {{"type", "exp"}}}}),
               SpecError);
  EXPECT_THROW(build_layer({{"type", "elementwise"}, {"features", 0}}), SpecError);
}

}  // namespace
}  // namespace diffeo
