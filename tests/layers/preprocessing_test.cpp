// Layers at the front of a flow: exact constants, domains that fit their neighbours, errors that name row and column.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Tensor row(const std::vector<double>& values) { return torch::tensor(values, torch::kDouble).unsqueeze(0); }

TEST(Standardize, ComputesWithTheDoublesOfItsSpec) {
  const auto layer =
      build_layer({{"type", "standardize"}, {"features", 2}, {"shift", {0.1, 1e6}}, {"scale", {0.3, 7.7}}});
  layer->to(torch::kFloat32);
  layer->to(torch::kDouble);
  const auto [y, log_det] = layer->forward(row({0.7, 1e6 + 0.1}));
  EXPECT_EQ(y[0][0].item<double>(), (0.7 - 0.1) / 0.3);
  EXPECT_EQ(y[0][1].item<double>(), (1e6 + 0.1 - 1e6) / 7.7);
  EXPECT_DOUBLE_EQ(log_det.item<double>(), -std::log(0.3) - std::log(7.7));
  EXPECT_TRUE(layer->traits().constant_log_det);
  const auto copy = clone(*layer);
  EXPECT_TRUE(torch::equal(copy->forward(row({0.7, 5})).value, layer->forward(row({0.7, 5})).value));
}

TEST(Standardize, WrongNumbersAreRefusedByTheirIndex) {
  const auto message = [](const Json& scale) {
    return error_of([&] {
      build_layer({{"type", "standardize"}, {"features", 3}, {"shift", {0.0, 0.0, 0.0}}, {"scale", scale}});
    });
  };
  EXPECT_EQ(message({1.0, 1.0, 0.0}).substr(0, 44), "scale/2: must be above 0 and finite, got 0; ");
  EXPECT_EQ(message({1.0, -1.0, 1.0}).substr(0, 8), "scale/1:");
  EXPECT_EQ(message({1.0, 1.0, std::numeric_limits<double>::infinity()}).substr(0, 8), "scale/2:");
  EXPECT_EQ(message({1.0, 1.0}), "scale: expected 3 items, one for each feature, got 2");
}

TEST(Standardize, MovesTheDomainWithTheData) {
  const auto layer = build_layer(Json::parse(R"({"type": "standardize", "features": 2, "shift": [1, 0],
                                                 "scale": [2, 1], "domain": [[0, 4], [null, null]]})"));
  EXPECT_EQ(layer->codomain().axes[0].lower, -0.5);
  EXPECT_EQ(layer->codomain().axes[0].upper, 1.5);
  EXPECT_FALSE(layer->codomain().axes[1].bounded());
  EXPECT_EQ(error_of([] {
              build_layer(Json::parse(R"({"type": "standardize", "features": 1, "shift": [1], "scale": [2],
                                          "domain": [[4, 0]]})"));
            }),
            "domain/0: lower must be below upper, got [4,0]");
}

TEST(Transform, FitsBeforeStandardizeAndBehindIt) {
  const auto front = Json::parse(R"({"type": "sequential", "layers": [
      {"type": "transform", "features": 2, "kinds": ["log", "logit"], "lower": [-1, 0], "upper": [0, 5]},
      {"type": "standardize", "features": 2, "shift": [0.5, 0.1], "scale": [2, 3]},
      {"type": "coupling", "features": 2}]})");
  EXPECT_NO_THROW(build_layer(front));
  const auto behind = Json::parse(R"({"type": "sequential", "layers": [
      {"type": "standardize", "features": 2, "shift": [-1, 0], "scale": [2, 5], "domain": [[-1, null], [0, 5]]},
      {"type": "transform", "features": 2, "kinds": ["log", "logit"]}]})");
  EXPECT_NO_THROW(build_layer(behind));
}

TEST(Transform, IsItsFormula) {
  const auto layer = build_layer(Json::parse(R"({"type": "transform", "features": 3, "kinds": ["none", "log", "logit"],
                                                 "lower": [0, -1, 2], "upper": [0, 0, 6]})"));
  layer->to(torch::kDouble);
  const auto [y, log_det] = layer->forward(row({-7, 4, 3}));
  EXPECT_TRUE(torch::allclose(y, row({-7, std::log(5.0), std::log(1.0 / 3)}), 1e-15, 1e-15)) << y;
  EXPECT_NEAR(log_det.item<double>(), -std::log(5.0) + std::log(4.0 / 3), 1e-14);
}

TEST(Transform, ValuesOutsideAreNamedByRowAndColumn) {
  const auto layer = build_layer({{"type", "transform"},
                                  {"features", 2},
                                  {"kinds", {"none", "logit"}},
                                  {"lower", {0.0, -1.0}},
                                  {"upper", {0.0, 2.0}}});
  layer->to(torch::kDouble);
  auto x = torch::zeros({4, 2}, torch::kDouble);
  EXPECT_NO_THROW(layer->forward(x));
  for (double bad : {2.0, -1.0, 3.5, std::numeric_limits<double>::quiet_NaN()}) {
    x[2][1] = bad;
    const auto message = error_of([&] { layer->forward(x); });
    EXPECT_EQ(message, c10::str("transform: value ", bad,
                                " in row 2, column 1 does not lie inside of (-1, 2), as "
                                "'logit' needs; set wider ends or another kind"));
  }
}

TEST(Transform, SamplesCanAlwaysBeEvaluated) {
  const auto layer = build_layer({{"type", "transform"},
                                  {"features", 3},
                                  {"kinds", {"log", "logit", "logit"}},
                                  {"lower", {5.0, 5.0, -3.0}},
                                  {"upper", {0.0, 6.0, 0.0}}});
  for (auto dtype : {torch::kFloat32, torch::kFloat64}) {
    layer->to(dtype);
    for (double size : {-1000.0, -60.0, 60.0, 1000.0}) {
      const auto [x, log_det] = layer->inverse(torch::full({2, 3}, size, dtype));
      const auto again = layer->forward(x);
      EXPECT_TRUE(again.value.isfinite().all().item<bool>()) << size << x;
      EXPECT_TRUE(again.log_det.isfinite().all().item<bool>()) << size << x;
      EXPECT_TRUE(log_det.isfinite().all().item<bool>()) << size << log_det;
    }
  }
}

TEST(Transform, WrongOptionsAreRefused) {
  const auto message = [](const char* spec) { return error_of([&] { build_layer(Json::parse(spec)); }); };
  EXPECT_EQ(message(R"({"type": "transform", "features": 1, "kinds": ["logs"]})"),
            "kinds/0: unknown value 'logs'; did you mean 'log'?; allowed are none, log, logit");
  EXPECT_EQ(message(R"({"type": "transform", "features": 2, "kinds": ["log"]})"),
            "kinds: expected 2 items, one for each feature, got 1");
  EXPECT_EQ(message(R"({"type": "transform", "features": 1, "kinds": ["logit"], "lower": [1]})"),
            "upper/0: must be finite and above lower (1), got 1");
}

}  // namespace
}  // namespace diffeo
