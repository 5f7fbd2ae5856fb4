#include "diffeo/flows/image_recipes.h"

#include "diffeo/flows/recipe_defaults.h"
#include "diffeo/layers/base/image_space.h"

namespace diffeo {
namespace {

using Layers = std::vector<Json>;
using Shape = std::vector<int64_t>;

Json channelwise(const Shape& shape, const Json& layer) {
  return {{"type", "channelwise"}, {"shape", shape}, {"layer", layer}};
}

Json coupling(const RecipeOptions& o, const Shape& shape, int64_t i) {
  // As in the flows of rows: the log scale of a value is bounded over the whole flow.
  const auto cap = std::min(2.0, 16.0 / static_cast<double>(o.layers * o.levels));
  return {{"type", "image_coupling"},
          {"shape", shape},
          {"map", {{"type", "affine"}, {"cap", cap}}},
          {"net",
           {{"type", o.net},
            {"width", o.width},
            {"depth", o.depth},
            {"activation", o.activation},
            {"init_scale", o.init_scale > 0 ? o.init_scale : 1e-3}}},
          {"flip", i % 2 == 1},
          {"context", o.context}};
}

void add_steps(Layers& layers, const RecipeOptions& o, const Shape& shape, int64_t level) {
  const auto channels = shape[0];
  for (int64_t i = 0; i < o.layers; ++i) {
    const auto seed = o.seed + level * o.layers + i;
    layers.push_back(channelwise(shape, {{"type", "actnorm"}, {"features", channels}}));
    if (o.linear == "lu")
      layers.push_back(
          channelwise(shape, {{"type", "lu_linear"}, {"features", channels}, {"permute", "random"}, {"seed", seed}}));
    if (o.linear == "permutation")
      layers.push_back(
          channelwise(shape, {{"type", "permutation"}, {"features", channels}, {"kind", "random"}, {"seed", seed}}));
    if (o.linear == "orthogonal")
      layers.push_back(channelwise(shape, {{"type", "orthogonal"}, {"features", channels}}));
    layers.push_back(coupling(o, shape, i));
  }
}

/// What stands from images of `shape` to the flat row: of each scale a squeeze and its steps, then, but for the last,
/// the channels in their order and the half of them that goes on (Kingma and Dhariwal 2018, figure 2b). Whatever the
/// order, the steps in front of it can learn to fill its first half: behind a squeeze without steps they could not,
/// since convolutions treat the four pixels that it makes channels of alike.
Layers scale(const RecipeOptions& o, Shape shape, int64_t level) {
  Layers layers{{{"type", "squeeze"}, {"shape", shape}}};
  shape = {4 * shape[0], shape[1] / 2, shape[2] / 2};
  add_steps(layers, o, shape, level);
  if (level + 1 == o.levels) {
    layers.push_back(channelwise(shape, {{"type", "actnorm"}, {"features", shape[0]}}));
    layers.push_back({{"type", "inverse"}, {"layer", {{"type", "image"}, {"shape", shape}, {"layout", "nhwc"}}}});
    return layers;
  }
  layers.push_back({{"type", "eiw_shuffle"}, {"shape", shape}, {"order", o.order}, {"regulariser", o.regulariser}});
  if (o.prior == "learned") layers.push_back(coupling(o, shape, 0));
  const Shape kept{shape[0] / 2, shape[1], shape[2]};
  layers.push_back({{"type", "factor_out"}, {"shape", shape}, {"layers", scale(o, kept, level + 1)}});
  return layers;
}

void check_images(const std::string& name, const RecipeOptions& given) {
  if (given.image.empty())
    throw SpecError("image", c10::str("what shape are the images? ", name,
                                      " needs --image C,H,W where the data do not "
                                      "say it in an attribute image_shape"));
  const auto features = within("image", [&] { return image_space(given.image).size(); });
  if (features != given.features)
    throw SpecError("image", c10::str("images of shape [", c10::Join(", ", given.image), "] have ", features,
                                      " values, but the data have ", given.features, " columns"));
  const auto height = given.image[1], width = given.image[2], most = most_levels(height, width);
  if (most == 0)
    throw SpecError("image", c10::str("images of ", height, " x ", width, " pixels cannot be squeezed to half their ",
                                      "sides: both must be even"));
  if (given.levels > most)
    throw SpecError("levels", c10::str("images of ", height, " x ", width, " pixels can be squeezed ", most,
                                       most == 1 ? " time" : " times", ", until a side is odd, so there are at most ",
                                       most, most == 1 ? " level" : " levels", "; got ", given.levels));
}

Json image_flow(const std::string& name, const RecipeOptions& given, const std::string& order) {
  check_images(name, given);
  if (order.empty() && !given.order.empty()) throw SpecError("order", c10::str("has no meaning for ", name));
  auto o = filled(name, given,
                  {.layers = 4,
                   .width = 48,
                   .depth = 1,
                   .net = "conv",
                   .activation = "relu",
                   .linear = "lu",
                   .image = given.image,
                   .layout = "nchw",
                   .levels = std::min<int64_t>(3, most_levels(given.image[1], given.image[2])),
                   .order = order.empty() ? "static" : order,
                   .regulariser = order.empty() ? "" : "kl",
                   .prior = "standard"});
  if (o.regulariser.empty()) o.regulariser = "kl";
  check_choice("net", o.net, {"conv", "gated_residual"});
  check_choice("linear", o.linear, {"lu", "permutation", "orthogonal", "none"});
  check_choice("prior", o.prior, {"standard", "learned"});
  check_choice("order", o.order, {"eiw", "static", "negentropy"});
  Layers layers{{{"type", "image"}, {"shape", o.image}, {"layout", o.layout}}};
  for (auto& layer : scale(o, o.image, 0)) layers.push_back(std::move(layer));
  const Json standard = {{"type", "normal"}, {"features", o.features}};
  return {{"type", "flow"}, {"layers", layers}, {"base", o.base.is_null() ? standard : o.base}};
}

}  // namespace

int64_t most_levels(int64_t height, int64_t width) {
  int64_t levels = 0;
  for (; height > 1 && width > 1 && height % 2 == 0 && width % 2 == 0; height /= 2, width /= 2) ++levels;
  return levels;
}

Json image_dequantization(const ImageRows& images, int64_t width) {
  auto shape = images.shape;
  const Json rows = {{"type", "image"}, {"shape", shape}, {"layout", images.layout}};
  const bool even = most_levels(shape[1], shape[2]) > 0;
  Layers layers{rows};
  const Json squeeze = {{"type", "squeeze"}, {"shape", shape}};
  if (even) {
    layers.push_back(squeeze);
    shape = {4 * shape[0], shape[1] / 2, shape[2] / 2};
  }
  for (int64_t i = 0; i < 4; ++i) {
    if (even && i % 2 == 0 && i > 0)
      layers.push_back(
          channelwise(shape, {{"type", "permutation"}, {"features", shape[0]}, {"kind", "random"}, {"seed", i}}));
    layers.push_back({{"type", "image_coupling"},
                      {"shape", shape},
                      {"map", {{"type", "affine"}, {"cap", 2.0}}},
                      {"net", {{"width", width}, {"init_scale", 1e-3}}},
                      {"mask", even ? "channels" : "checkerboard"},
                      {"flip", i % 2 == 1},
                      {"context_image", images.shape},
                      {"context_layout", images.layout}});
  }
  if (even) layers.push_back({{"type", "inverse"}, {"layer", squeeze}});
  layers.push_back({{"type", "inverse"}, {"layer", rows}});
  return {{"type", "variational_dequantization"}, {"features", images.size()}, {"layers", layers}};
}

Json eiw(const RecipeOptions& given) { return image_flow("eiw", given, "eiw"); }
Json glow_image(const RecipeOptions& given) { return image_flow("glow-image", given, ""); }

}  // namespace diffeo
