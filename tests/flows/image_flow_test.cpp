// Flows of images: the recipes, bits per dimension, and noise on whole numbers, uniform and learned.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "diffeo/flows/image_recipes.h"
#include "diffeo/flows/likelihood.h"
#include "diffeo/flows/preprocess.h"

namespace diffeo::testing {
namespace {

constexpr auto seed = 17;

FlowPtr built(const Json& spec, torch::Dtype dtype = torch::kFloat64) {
  torch::manual_seed(seed);
  auto flow = build_flow(spec);
  flow->to(dtype);
  torch::NoGradGuard no_grad;
  for (auto& parameter : flow->parameters()) parameter.add_(torch::randn_like(parameter), 0.05);
  flow->eval();
  return flow;
}

std::string message(const std::string& name, const RecipeOptions& options) {
  try {
    recipe(name, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

RecipeOptions small(std::vector<int64_t> image) {
  return {.features = image[0] * image[1] * image[2], .layers = 2, .width = 6, .image = std::move(image)};
}

TEST(ImageRecipes, DrawnImagesHaveTheDensityThatTheyCameWith) {
  for (const std::string name : {"eiw", "glow-image"})
    for (const auto& image : {std::vector<int64_t>{1, 28, 28}, {3, 8, 8}, {1, 2, 6}})
      for (int64_t context : {0, 2}) {
        auto options = small(image);
        options.context = context;
        options.layout = image[0] == 3 ? "nhwc" : "";
        if (image[1] % 4 == 0) options.prior = "learned";
        const auto flow = built(recipe(name, options));
        EXPECT_EQ(flow->space().event, std::vector<int64_t>{options.features});
        torch::NoGradGuard no_grad;
        const auto c = context > 0 ? torch::randn({5, context}, torch::kFloat64) : Tensor();
        const auto [x, log_prob] = flow->draw({5}, c);
        EXPECT_TRUE(torch::allclose(flow->log_prob(x, c), log_prob, 1e-8, 1e-6)) << name << " " << Json(image).dump();
        EXPECT_EQ(build_flow(flow->spec())->spec(), flow->spec());
      }
}

TEST(ImageRecipes, EachOrderAndNetworkBuilds) {
  for (const std::string order : {"eiw", "static", "negentropy"})
    for (const std::string net : {"conv", "gated_residual"}) {
      auto options = small({1, 8, 8});
      options.order = order;
      options.net = net;
      EXPECT_NO_THROW(built(recipe("eiw", options))->sample(2)) << order << " " << net;
    }
}

TEST(ImageRecipes, MistakesAreNamed) {
  const auto refused = [](const std::string& name, const RecipeOptions& options, const std::string& part) {
    EXPECT_NE(message(name, options).find(part), std::string::npos) << message(name, options);
  };
  refused("eiw", {.features = 784}, "image: what shape are the images?");
  auto wrong = small({1, 28, 28});
  wrong.features = 100;
  refused("eiw", wrong, "have 784 values, but the data have 100 columns");
  refused("eiw", small({1, 7, 7}), "both must be even");
  auto deep = small({1, 28, 28});
  deep.levels = 3;
  refused("eiw", deep, "levels: images of 28 x 28 pixels can be squeezed 2 times");
  auto order = small({1, 8, 8});
  order.order = "negentrpy";
  refused("eiw", order, "order: unknown value 'negentrpy'; did you mean 'negentropy'?");
  refused("glow-image", order, "order: has no meaning for glow-image");
  auto bins = small({1, 8, 8});
  bins.bins = 8;
  refused("eiw", bins, "bins: has no meaning for eiw");
  auto nsf = RecipeOptions{.features = 64, .image = {1, 8, 8}};
  refused("nsf", nsf, "image: has no meaning for nsf");
}

/// Values of 8 bits scaled to [0, 1): minus the log density there, in bits, and 8 more for each dimension, is minus the
/// log density of the values themselves.
TEST(BitsPerDimension, BothConventionsOfEightBitsAgree) {
  const auto inner = recipe("eiw", small({3, 4, 4}));
  auto outer = inner;
  Json layers = {{{"type", "standardize"},
                  {"features", 48},
                  {"shift", std::vector<double>(48, 0.0)},
                  {"scale", std::vector<double>(48, 256.0)}}};
  for (const auto& layer : inner["layers"]) layers.push_back(layer);
  outer["layers"] = layers;
  const auto on_unit = built(inner), on_values = built(outer);
  torch::NoGradGuard no_grad;
  const auto x = torch::randint(256, {20, 48}).to(torch::kFloat64) + torch::rand({20, 48}, torch::kFloat64);
  LogLikelihoods scaled;
  scaled.add(on_values->log_prob(x));
  const double bits = -on_unit->log_prob(x / 256).mean().item<double>() / (48 * std::log(2.0)) + 8;
  EXPECT_NEAR(scaled.bits_per_dimension(48), bits, 1e-9);
}

FlowPtr normal_with(const Json& dequantization, double scale) {
  return build_flow(
      {{"layers", {dequantization, {{"type", "standardize"}, {"features", 1}, {"shift", {0.5}}, {"scale", {scale}}}}},
       {"base", {{"type", "normal"}, {"features", 1}}}});
}

TEST(VariationalDequantization, ManyDrawsReachTheProbabilityOfTheNumber) {
  torch::manual_seed(seed);
  const double scale = 0.6;
  for (const bool learned : {false, true}) {
    Json layer = {{"type", "variational_dequantization"}, {"features", 1}, {"values", 4}};
    if (learned)
      layer["layers"] = {{{"type", "elementwise"}, {"features", 1}, {"context", 1}, {"map", {{"type", "affine"}}}}};
    const auto flow = normal_with(layer, scale);
    flow->to(torch::kFloat64);
    torch::NoGradGuard no_grad;
    for (auto& parameter : flow->parameters()) parameter.add_(torch::randn_like(parameter), 0.05);
    const auto x = torch::tensor({{-1.0}, {0.0}, {1.0}}, torch::kFloat64);
    const auto cdf = [&](const Tensor& value) { return torch::special_ndtr((value - 0.5) / scale); };
    const auto exact = (cdf(x + 1) - cdf(x)).log().squeeze(1);
    const auto many = flow->log_prob_bound(x, {}, 4000);
    EXPECT_TRUE(torch::allclose(many, exact, 0, 0.05)) << "learned " << learned << ", seed " << seed << "\n"
                                                       << many << exact;
    const auto mean_of = [&](int64_t samples) {
      return flow->log_prob_bound(x.repeat({2000, 1}), {}, samples).view({2000, 3}).mean(0);
    };
    const auto one = mean_of(1), ten = mean_of(10);
    EXPECT_TRUE((one < ten + 0.005).all().item<bool>()) << one << ten;
    EXPECT_TRUE((ten < exact + 0.01).all().item<bool>()) << ten << exact;
  }
}

TEST(VariationalDequantization, RoundsBackToTheSameNumberAndCancels) {
  for (const std::string layout : {"nchw", "nhwc"})
    for (const auto& shape : {std::vector<int64_t>{1, 4, 4}, {3, 2, 4}, {1, 3, 3}}) {
      torch::manual_seed(seed);
      const auto layer = build_layer(image_dequantization({shape, layout}, 4));
      layer->to(torch::kFloat64);
      torch::NoGradGuard no_grad;
      for (auto& parameter : layer->parameters()) parameter.add_(torch::randn_like(parameter), 0.1);
      const auto x = torch::randint(256, {7, layer->domain().size()}).to(torch::kFloat64);
      const auto there = layer->forward(x);
      const auto back = layer->inverse(there.value);
      EXPECT_TRUE(torch::equal(back.value, x));
      EXPECT_TRUE(torch::allclose(back.log_det, -there.log_det, 1e-6, 1e-6)) << there.log_det << back.log_det;
      EXPECT_TRUE(((there.value - x) > 0).all().item<bool>() && ((there.value - x) < 1).all().item<bool>());
    }
}

TEST(VariationalDequantization, ANewOneIsUniformNoise) {
  torch::manual_seed(seed);
  const auto layer = build_layer({{"type", "variational_dequantization"}, {"features", 1}});
  const auto x = torch::full({20000, 1}, 255.0);
  const auto [y, log_det] = layer->forward(x);
  EXPECT_LT(log_det.abs().max().item<double>(), 1e-5);
  EXPECT_TRUE(torch::equal(y.floor(), x));
  EXPECT_NEAR((y - x).mean().item<double>(), 0.5, 0.01) << "seed " << seed;
  EXPECT_NEAR((y - x).var().item<double>(), 1.0 / 12, 0.003) << "seed " << seed;
}

TEST(Preprocess, ImagesShareOneShiftAndScaleOrGoThroughTheLogit) {
  torch::manual_seed(seed);
  const auto rows = torch::randint(256, {300, 4}).to(torch::kFloat32) * torch::tensor({1.0, 1.0, 0.0, 0.5});
  const std::vector<Column> columns(4, {.name = "x", .unit = "", .discrete = true});
  const auto shared = preprocessing({.preprocess = "shared"}, columns, *in_memory({.x = rows.floor()}));
  ASSERT_EQ(shared.size(), 1u);
  const auto y = build_layer(shared[0])->forward(rows.floor()).value;
  EXPECT_NEAR(y.mean().item<double>(), 0, 1e-4);
  EXPECT_NEAR(y.std().item<double>(), 1, 1e-2);
  EXPECT_EQ(shared[0]["scale"][0], shared[0]["scale"][2]);
  const auto logit = preprocessing({.preprocess = "logit"}, columns, *in_memory({.x = rows.floor()}));
  const auto bent = build_layer(logit.at(0));
  const auto ends = bent->forward(torch::tensor({{0.0F, 255.999F, 128.0F, 1.0F}})).value;
  EXPECT_NEAR(ends[0][0].item<double>(), std::log(0.05 / 0.95), 1e-4);
  EXPECT_NEAR(ends[0][1].item<double>(), std::log(0.95 / 0.05), 1e-3);
  EXPECT_NEAR(ends[0][2].item<double>(), 0, 1e-5);
  EXPECT_THROW(preprocessing({.preprocess = "logit"}, columns, *in_memory({.x = rows + 300})), Error);
}

}  // namespace
}  // namespace diffeo::testing
