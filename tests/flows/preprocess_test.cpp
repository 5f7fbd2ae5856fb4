// What the program trusts: preprocessing layers fit the data, and log-likelihoods add up to the right figures.
#include "diffeo/flows/preprocess.h"

#include <gtest/gtest.h>

#include <cmath>

#include "diffeo/flows/flow.h"
#include "diffeo/flows/likelihood.h"
#include "diffeo/flows/recipes.h"
#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

const std::vector<Column> columns{{.name = "a", .unit = "", .discrete = false},
                                  {.name = "b", .unit = "", .discrete = false},
                                  {.name = "rings", .unit = "", .discrete = true}};

/// 2000 rows: b is positive, rings are small integers.
Tensor rows() {
  torch::manual_seed(11);
  const auto a = 5 + 3 * torch::randn({2000}, torch::kFloat64), b = torch::randn({2000}, torch::kFloat64).exp();
  return torch::stack({a, b, torch::randint(0, 6, {2000}, torch::kFloat64)}, 1);
}

Tensor through(const std::vector<Json>& layers, Tensor x) {
  for (const auto& spec : layers) {
    auto layer = build_layer(spec);
    layer->to(torch::kFloat64);
    x = layer->forward(x).value;
  }
  return x;
}

std::string problem(const PreprocessOptions& options) {
  try {
    preprocessing(options, columns, *in_memory({.x = rows(), .context = {}, .weight = {}, .label = {}}));
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(Preprocess, BringsColumnsToTheirStandardForm) {
  const auto x = rows();
  const auto data = in_memory({.x = x, .context = {}, .weight = {}, .label = {}});
  const auto standard = through(preprocessing({}, columns, *data), x);
  EXPECT_LT(standard.mean(0).abs().max().item<double>(), 1e-9);
  EXPECT_LT((standard.std(0, false) - 1).abs().max().item<double>(), 1e-9);
  const auto between =
      through(preprocessing({.preprocess = "minmax", .transform = {}, .dequantize = {}}, columns, *data), x);
  EXPECT_LT((between.amin(0) + 1).abs().max().item<double>(), 1e-9);
  EXPECT_LT((between.amax(0) - 1).abs().max().item<double>(), 1e-9);
  const auto robust =
      through(preprocessing({.preprocess = "robust", .transform = {}, .dequantize = {}}, columns, *data), x);
  EXPECT_LT(std::get<0>(robust.median(0)).abs().max().item<double>(), 1e-2);
  EXPECT_TRUE(preprocessing({.preprocess = "none", .transform = {}, .dequantize = {}}, columns, *data).empty());
}

TEST(Preprocess, StatisticsAreThoseAfterTransformAndDequantisation) {
  const auto x = rows();
  const auto data = in_memory({.x = x, .context = {}, .weight = {}, .label = {}});
  const PreprocessOptions options{.preprocess = "standardize", .transform = {"b=log"}, .dequantize = {"all"}};
  const auto layers = preprocessing(options, columns, *data);
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(dequantized_columns(options, columns), std::vector<int64_t>{2});
  const auto y = through(layers, x);
  EXPECT_LT(y.select(1, 1).mean().abs().item<double>(), 1e-9);
  EXPECT_LT((y.select(1, 1).std(false) - 1).abs().item<double>(), 1e-9);
  // Uniform noise on [0, 1) adds a half to the mean of the integers.
  const auto shift = layers[1]["shift"][2].get<double>();
  EXPECT_NEAR(shift, x.select(1, 2).mean().item<double>() + 0.5, 0.03);
}

TEST(Preprocess, AConstantColumnKeepsItsScale) {
  auto x = rows();
  x.select(1, 0).fill_(3e5);
  const auto layers = preprocessing({}, columns, *in_memory({.x = x, .context = {}, .weight = {}, .label = {}}));
  EXPECT_EQ(layers[0]["scale"][0].get<double>(), 1.0);
  EXPECT_TRUE(through(layers, x).isfinite().all().item<bool>());
}

TEST(Preprocess, MistakesAreNamed) {
  EXPECT_EQ(problem({}), "none");
  EXPECT_NE(problem({.preprocess = "whiten", .transform = {}, .dequantize = {}}).find("'whiten'"), std::string::npos);
  const auto transform = [](const std::string& item) {
    return problem({.preprocess = "none", .transform = {item}, .dequantize = {}});
  };
  EXPECT_NE(transform("ring=log").find("no column 'ring'; did you mean 'rings'?"), std::string::npos);
  EXPECT_NE(transform("a=log").find("a=log needs values above 0"), std::string::npos);
  EXPECT_NE(transform("b=logit").find("b=logit needs values below 1"), std::string::npos);
  EXPECT_NE(transform("b=sqrt").find("unknown value 'sqrt'"), std::string::npos);
  EXPECT_NE(transform("b").find("COLUMN=log"), std::string::npos);
  EXPECT_NE(transform("b=logit:0").find("expected log:LOWER or logit:LOWER:UPPER"), std::string::npos);
  EXPECT_NE(transform("b=logit:0:ten").find("expected a number, got 'ten'"), std::string::npos);
  EXPECT_NE(transform("b=logit:1:0").find("one below the other"), std::string::npos);
  EXPECT_NE(transform("b=logit").find("b=logit:LOWER:UPPER"), std::string::npos);
}

TEST(Preprocess, EndsOfTransformsAreSaidWithThem) {
  // Whole numbers from 0 to 255, a constant one among them: noise may bring them to either end, 0 or 256.
  torch::manual_seed(3);
  const std::vector<Column> pixels{{"a", "", true}, {"b", "", true}, {"c", "", true}};
  auto x = torch::randint(0, 256, {2000, 3}, torch::kFloat64);
  x.select(1, 1).zero_();
  const auto data = in_memory({.x = x, .context = {}, .weight = {}, .label = {}});
  const PreprocessOptions options{
      .preprocess = "none", .transform = {"all=logit:0:256", "c=log:-1"}, .dequantize = {"all"}};
  const auto layers = preprocessing(options, pixels, *data);
  ASSERT_EQ(layers.size(), 1u);
  EXPECT_EQ(layers[0]["kinds"], Json({"logit", "logit", "log"}));
  auto ends = torch::tensor({{0.0, 256.0, 0.0}, {256.0, 0.0, 256.0}}, torch::kFloat64);
  EXPECT_TRUE(through(layers, ends).isfinite().all().item<bool>());
  const auto y = through(layers, x + 0.5);
  const auto want = ((x + 0.5) / 256).logit();
  EXPECT_TRUE(torch::allclose(y.slice(1, 0, 2), want.slice(1, 0, 2), 1e-3, 1e-3));
  EXPECT_TRUE(torch::allclose(y.select(1, 2), (x.select(1, 2) + 1.5).log(), 1e-5, 1e-5));
}

TEST(LogLikelihoods, GiveMeanAndStandardErrorInPieces) {
  torch::manual_seed(12);
  const auto all = 1e6 + torch::randn({1000}, torch::kFloat64);  // far from 0: sums of squares would lose all digits
  LogLikelihoods pieces;
  for (const auto& piece : all.split(64)) pieces.add(piece);
  EXPECT_EQ(pieces.rows(), 1000);
  EXPECT_NEAR(pieces.mean(), all.mean().item<double>(), 1e-9);
  EXPECT_NEAR(pieces.standard_error(), all.std().item<double>() / std::sqrt(1000.0), 1e-9);
  EXPECT_NEAR(pieces.bits_per_dimension(2), -all.mean().item<double>() / (2 * std::log(2.0)), 1e-6);
}

TEST(LogLikelihoods, WeightsCountRowsTwiceOrNotAtAll) {
  LogLikelihoods weighted, plain;
  weighted.add(torch::tensor({1.0, 2.0, 7.0}, torch::kFloat64), torch::tensor({2.0, 1.0, 0.0}, torch::kFloat64));
  plain.add(torch::tensor({1.0, 1.0, 2.0}, torch::kFloat64));
  EXPECT_NEAR(weighted.mean(), plain.mean(), 1e-12);
}

TEST(LogLikelihoods, ImpossibleRowsAreCounted) {
  LogLikelihoods all;
  all.add(torch::tensor({1.0, -HUGE_VAL, 3.0}, torch::kFloat64));
  EXPECT_EQ(all.rows(), 3);
  EXPECT_EQ(all.impossible(), 1);
  EXPECT_EQ(all.mean(), -HUGE_VAL);
}

TEST(ContextPreprocessing, BringsContextsNearToAStandardNormalAndIsPartOfTheFlow) {
  const auto contexts = rows();
  const auto data = in_memory({.x = contexts.narrow(1, 0, 1), .context = contexts});
  const auto layers = context_preprocessing({}, 3, *data);
  const auto scaled = through(layers, contexts);
  EXPECT_LT(scaled.mean(0).abs().max().item<double>(), 1e-12);
  EXPECT_LT((scaled.std(0, false) - 1).abs().max().item<double>(), 1e-12);
  EXPECT_TRUE(context_preprocessing({.preprocess_context = "none"}, 3, *data).empty());
  EXPECT_TRUE(context_preprocessing({}, 0, *data).empty());

  auto spec = recipe("nsf", {.features = 2, .context = 3, .layers = 2, .width = 8});
  torch::manual_seed(3);
  const auto plain = build_flow(spec);
  spec["context_layers"] = layers;
  torch::manual_seed(3);
  const auto flow = build_flow(spec);
  EXPECT_EQ(flow->spec()["context_layers"], build_flow(flow->spec())->spec()["context_layers"]);
  plain->to(torch::kFloat64);
  flow->to(torch::kFloat64);
  for (auto& pair : {plain, flow}) {  // the networks have to look at their contexts
    torch::manual_seed(4);
    torch::NoGradGuard no_grad;
    for (auto& parameter : pair->parameters()) parameter.add_(torch::randn_like(parameter), 0.1);
  }
  const auto x = torch::randn({2000, 2}, torch::kFloat64);
  EXPECT_TRUE(torch::allclose(flow->log_prob(x, contexts), plain->log_prob(x, scaled)));
  EXPECT_FALSE(torch::allclose(flow->log_prob(x, contexts), plain->log_prob(x, contexts)));
  torch::manual_seed(5);
  const auto drawn = flow->sample({2000}, contexts);
  torch::manual_seed(5);
  EXPECT_TRUE(torch::allclose(drawn, plain->sample({2000}, scaled)));
}

TEST(ContextPreprocessing, NamesWhatDoesNotFit) {
  auto spec = recipe("nsf", {.features = 2, .context = 3, .layers = 2, .width = 8});
  spec["context_layers"] = {{{"type", "standardize"}, {"features", 2}, {"shift", {0, 0}}, {"scale", {1, 1}}}};
  EXPECT_THROW(build_flow(spec), Error);
  spec["context_layers"][0]["scale"] = {1, -1};
  try {
    build_flow(spec);
    FAIL() << "a negative scale was taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("context_layers/0/scale/1"), std::string::npos) << error.what();
  }
  auto without = recipe("nsf", {.features = 2, .layers = 2, .width = 8});
  without["context_layers"] = {{{"type", "standardize"}, {"features", 1}, {"shift", {0}}, {"scale", {1}}}};
  EXPECT_THROW(build_flow(without), Error);
}

}  // namespace
}  // namespace diffeo
