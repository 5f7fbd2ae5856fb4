// Images as events: what lies where, what is refused, and that pixels see their neighbours.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "diffeo/data/image_rows.h"
#include "diffeo/layers/base/registry.h"
#include "diffeo/layers/nets/conv_net.h"

namespace diffeo::testing {
namespace {

constexpr auto seed = 21;

std::string refusal(const std::string& spec) {
  try {
    build_layer(Json::parse(spec));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const auto& word : words)
    EXPECT_NE(text.find(word), std::string::npos) << "'" << word << "' is not in: " << text;
}

TEST(Image, PutsTheNumbersOfARowWhereTheLayoutSays) {
  const auto row = torch::arange(12, torch::kFloat32);
  const auto nchw = build_layer(Json::parse(R"({"type": "image", "shape": [2, 3, 2]})"))->forward(row).value;
  const auto nhwc =
      build_layer(Json::parse(R"({"type": "image", "shape": [2, 3, 2], "layout": "nhwc"})"))->forward(row).value;
  for (int64_t c = 0; c < 2; ++c)
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 2; ++j) {
        EXPECT_EQ(nchw[c][i][j].item<double>(), static_cast<double>((c * 3 + i) * 2 + j));
        EXPECT_EQ(nhwc[c][i][j].item<double>(), static_cast<double>((i * 2 + j) * 2 + c));
      }
}

TEST(Squeeze, TurnsBlocksIntoChannels) {
  const auto layer = build_layer(Json::parse(R"({"type": "squeeze", "shape": [2, 4, 6]})"));
  torch::manual_seed(seed);
  const auto x = torch::randn({3, 2, 4, 6});
  const auto y = layer->forward(x).value;
  for (int64_t c = 0; c < 2; ++c)
    for (int64_t i = 0; i < 2; ++i)
      for (int64_t j = 0; j < 2; ++j)
        EXPECT_TRUE(torch::equal(y.select(1, 4 * c + 2 * i + j), x.select(1, c).slice(1, i, 4, 2).slice(2, j, 6, 2)));
  EXPECT_TRUE(torch::equal(layer->inverse(y).value, x));
}

TEST(Squeeze, RefusesOddSides) {
  expect_words(refusal(R"({"type": "squeeze", "shape": [4, 7, 7]})"),
               {"shape", "7 x 7", "even", "28 goes to 14 and 7"});
}

TEST(Channelwise, AnActNormStandardisesEachChannelOfTheFirstBatch) {
  const auto layer = build_layer(
      Json::parse(R"({"type": "channelwise", "shape": [2, 4, 4], "layer": {"type": "actnorm", "features": 2}})"));
  torch::manual_seed(seed);
  const auto x = torch::randn({20, 2, 4, 4}) * torch::tensor({3.0, 0.1}).view({2, 1, 1}) + 5;
  const auto [y, log_det] = layer->forward(x);
  EXPECT_LT(y.mean({0, 2, 3}).abs().max().item<double>(), 1e-5);
  EXPECT_LT((y.permute({1, 0, 2, 3}).flatten(1).std(1, false) - 1).abs().max().item<double>(), 1e-5);
  const double each = -x.permute({1, 0, 2, 3}).flatten(1).std(1, false).log().sum().item<double>();
  EXPECT_NEAR(log_det[0].item<double>(), 16 * each, 1e-3);
}

TEST(Channelwise, ALinearLayerIsAPointwiseConvolution) {
  torch::manual_seed(seed);
  const auto inner = build_layer({{"type", "lu_linear"}, {"features", 3}});
  const auto layer = build_layer({{"type", "channelwise"}, {"shape", {3, 2, 5}}, {"layer", inner->spec()}});
  {
    torch::NoGradGuard no_grad;
    for (auto& parameter : layer->parameters()) parameter.normal_();
    copy_state(*layer->children()[0], *inner);
  }
  const auto x = torch::randn({3, 2, 5});
  const auto [y, log_det] = layer->forward(x);
  const auto pixel = inner->forward(x.select(2, 4).select(1, 1));
  EXPECT_TRUE(torch::allclose(y.select(2, 4).select(1, 1), pixel.value, 1e-5, 1e-6));
  EXPECT_NEAR(log_det.item<double>(), 10 * pixel.log_det.item<double>(), 1e-4);
}

TEST(Channelwise, RefusesALayerOfOtherSize) {
  expect_words(refusal(R"({"type": "channelwise", "shape": [3, 2, 2], "layer": {"type": "actnorm", "features": 4}})"),
               {"layer", "3 features"});
}

TEST(ImageCoupling, RefusesWhatHasNothingToKeep) {
  expect_words(refusal(R"({"type": "image_coupling", "shape": [1, 4, 4]})"), {"shape", "squeeze", "checkerboard"});
  expect_words(refusal(R"({"type": "image_coupling", "shape": [2, 4, 4], "net": {"kernel": 4}})"),
               {"net/kernel", "odd"});
  expect_words(refusal(R"({"type": "image_coupling", "shape": [2, 4, 4], "context_image": [1, 12, 12]})"),
               {"context_image", "power of two", "12 x 12"});
}

TEST(FactorOut, RefusesLayersThatDoNotEndInARow) {
  expect_words(refusal(R"({"type": "factor_out", "shape": [4, 2, 2], "layers": [
                         {"type": "channelwise", "shape": [2, 2, 2], "layer": {"type": "actnorm", "features": 2}}]})"),
               {"layers", "flat row"});
  expect_words(refusal(R"({"type": "factor_out", "shape": [4, 2, 2], "layers": [
                         {"type": "channelwise", "shape": [4, 2, 2], "layer": {"type": "actnorm", "features": 4}}]})"),
               {"layers/0", "(*batch, 2, 2, 2)"});
}

/// Convolution by its definition, zeros beyond the border.
Tensor convolved(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const auto height = x.size(0), width = x.size(1), reach = weight.size(2) / 2;
  auto y = torch::zeros({height, width, weight.size(0)}, x.options());
  for (int64_t i = 0; i < height; ++i)
    for (int64_t j = 0; j < width; ++j) {
      auto sum = bias.clone();
      for (int64_t a = -reach; a <= reach; ++a)
        for (int64_t b = -reach; b <= reach; ++b)
          if (i + a >= 0 && i + a < height && j + b >= 0 && j + b < width)
            sum += weight.select(3, b + reach).select(2, a + reach).matmul(x[i + a][j + b]);
      y[i][j] = sum;
    }
  return y;
}

TEST(ConvNet, IsTheConvolutionsItSays) {
  for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
    torch::manual_seed(seed);
    const auto net = build_conv_net({.width = 5, .depth = 1, .activation = "tanh", .init_scale = 1}, 3, 2, 4);
    net->to(dtype);
    torch::NoGradGuard no_grad;
    const auto x = torch::randn({2, 4, 6, 3}, dtype), context = torch::randn({2, 2}, dtype);
    const auto got = net->forward(x, context);
    ASSERT_EQ(got.sizes(), at::IntArrayRef({2, 4, 6, 4}));
    std::vector<Tensor> p;
    for (const auto& parameter : net->parameters()) p.push_back(parameter);
    for (int64_t n = 0; n < 2; ++n) {
      const auto input = torch::cat({x[n], context[n].expand({4, 6, 2})}, -1);
      const auto first = convolved(input, p[0], p[1]).tanh();
      const auto hidden = (torch::matmul(first, p[2].flatten(1).t()) + p[3]).tanh();
      EXPECT_TRUE(torch::allclose(got[n], convolved(hidden, p[4], p[5]), 1e-4, 1e-5)) << "seed " << seed;
    }
  }
}

TEST(ConvNet, TakesAnyBatch) {
  torch::manual_seed(seed);
  for (const std::string type : {"conv", "gated_residual"}) {
    const auto net = build_conv_net({.type = type, .width = 4}, 2, 0, 3);
    const auto x = torch::randn({2, 3, 4, 4, 2});
    const auto all = net->forward(x);
    EXPECT_TRUE(torch::allclose(all[1][2], net->forward(x[1][2]), 1e-4, 1e-5)) << type;
    EXPECT_EQ(net->forward(x.narrow(0, 0, 0)).sizes(), at::IntArrayRef({0, 3, 4, 4, 3})) << type;
  }
}

TEST(ImageRows, StoredShapesAreUnderstood) {
  EXPECT_EQ(image_rows("f", {28, 28}), (ImageRows{{1, 28, 28}, "nchw"}));
  EXPECT_EQ(image_rows("f", {32, 32, 3}), (ImageRows{{3, 32, 32}, "nhwc"}));
  EXPECT_EQ(image_rows("f", {3, 32, 32}), (ImageRows{{3, 32, 32}, "nchw"}));
  EXPECT_FALSE(image_rows("f", {784}).has_value());
  EXPECT_THROW(image_rows("f", {3, 32, 4}), Error);
  EXPECT_THROW(image_rows("f", {16, 32, 32}), Error);
}

TEST(ImageRows, MirroringTurnsLeftAndRightInBothLayouts) {
  for (const std::string layout : {"nchw", "nhwc"}) {
    const ImageRows images{{2, 3, 4}, layout};
    const auto rows = torch::arange(48, torch::kFloat32).view({2, 24});
    EXPECT_TRUE(torch::equal(images.pixels(rows.index_select(1, images.mirrored())), images.pixels(rows).flip(2)));
  }
}

TEST(ImageRows, FlippedEpochsMirrorAboutHalfAndAreRepeatable) {
  const ImageRows images{{1, 2, 3}, "nchw"};
  torch::manual_seed(seed);
  const auto rows = torch::randn({400, 6});
  const auto data = flipped(in_memory({.x = rows}), images);
  const auto epoch = [&](int64_t number) {
    std::vector<Tensor> parts;
    const auto stream = data->shuffled(32, 5, number);
    for (Batch batch; stream->next(batch);) parts.push_back(batch.x);
    return torch::cat(parts);
  };
  const auto plain_stream = in_memory({.x = rows})->shuffled(400, 5, 1);
  Batch plain;
  plain_stream->next(plain);
  const auto flipped_rows = epoch(1).ne(plain.x).any(1).sum().item<int64_t>();
  EXPECT_GT(flipped_rows, 150);
  EXPECT_LT(flipped_rows, 250);
  EXPECT_TRUE(torch::equal(epoch(1), epoch(1)));
  EXPECT_FALSE(torch::equal(epoch(1), epoch(2)));
  const auto later = data->shuffled(32, 5, 1);
  later->skip(3);
  Batch batch;
  later->next(batch);
  EXPECT_TRUE(torch::equal(batch.x, epoch(1).narrow(0, 96, 32)));
  Batch first;
  data->in_order(400)->next(first);
  EXPECT_TRUE(torch::equal(first.x, rows));
}

}  // namespace
}  // namespace diffeo::testing
