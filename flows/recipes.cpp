#include "diffeo/flows/recipes.h"

#include <cmath>
#include <numbers>

#include "diffeo/flows/image_recipes.h"
#include "diffeo/flows/recipe_defaults.h"
#include "diffeo/layers/base/ranges.h"

namespace diffeo {

RecipeOptions filled(const std::string& name, const RecipeOptions& given, const RecipeOptions& standard) {
  auto options = given;
  const std::vector<std::string> common{"features", "context", "dropout", "init_scale", "precision", "base", "seed"};
  const auto fill = [&](const auto& field) {
    using T = std::remove_cvref_t<decltype(options.*(field.member))>;
    if (std::find(common.begin(), common.end(), field.name) != common.end()) return;
    auto& value = options.*(field.member);
    if (value == T{})
      value = standard.*(field.member);
    else if (standard.*(field.member) == T{})
      throw SpecError(field.name, c10::str("has no meaning for ", name));
  };
  std::apply([&](const auto&... field) { (fill(field), ...); }, RecipeOptions::fields());
  at_least(1, "features", options.features);
  at_least(0, "context", options.context);
  not_negative("init_scale", options.init_scale);
  if (options.init_scale > 0 && standard.width == 0)
    throw SpecError("init_scale", c10::str("has no meaning for ", name));
  if (standard.layers > 0) at_least(1, "layers", options.layers);
  return options;
}

namespace {

using Layers = std::vector<Json>;

/// The same for recipes that make nothing of one feature.
RecipeOptions filled_for_several(const std::string& name, const RecipeOptions& given, const RecipeOptions& standard) {
  if (given.features == 1)
    throw SpecError("features", c10::str(name, " needs at least 2, got 1; nsf makes a flow of one feature"));
  return filled(name, given, standard);
}

Json net_of(const RecipeOptions& o) {
  Json net = {
      {"type", o.net}, {"width", o.width}, {"depth", o.depth}, {"activation", o.activation}, {"dropout", o.dropout}};
  if (!o.precision.empty()) net["precision"] = o.precision;
  if (o.init_scale > 0) net["init_scale"] = o.init_scale;
  return net;
}

Json spline_of(const RecipeOptions& o) { return {{"type", "rq_spline"}, {"bins", o.bins}, {"bound", o.bound}}; }

Json elementwise(const RecipeOptions& o, const Json& map) {
  return {{"type", "elementwise"}, {"features", o.features}, {"map", map}};
}

/// A coupling that moves, in turn, one part of the features and the other.
Json coupling(const RecipeOptions& o, int64_t i, const Json& map, const Json& kept_map = nullptr) {
  // A random mask is drawn anew for each pair, so that each feature of a pair is moved by one of the two.
  return {{"type", "coupling"},  {"features", o.features}, {"context", o.context}, {"map", map},
          {"net", net_of(o)},    {"mask", o.mask},         {"flip", i % 2 == 0},   {"mask_seed", o.seed + i / 2},
          {"kept_map", kept_map}};
}

/// The log scale of a feature is bounded over the whole flow, not layer by layer: deep flows would lose all digits of
/// points far out on the way there and back.
Json affine_of(const RecipeOptions& o) {
  return {{"type", "affine"}, {"cap", std::min(2.0, 16.0 / static_cast<double>(o.layers))}};
}

/// Starts at the identity to a thousandth, unless told otherwise, as Kingma and Dhariwal start theirs at it.
Json affine_coupling(const RecipeOptions& o, int64_t i) {
  auto layer = coupling(o, i, affine_of(o));
  if (o.init_scale == 0) layer["net"]["init_scale"] = 1e-3;
  return layer;
}

/// The temperature of Durkan et al.: the root of the width of the network that makes the parameters. Without it small
/// tables are learned by heart within a few hundred steps.
double usual_temperature(const RecipeOptions& given, int64_t standard_width) {
  return std::sqrt(static_cast<double>(given.width > 0 ? given.width : standard_width));
}

Json conditioned(Json spline, const RecipeOptions& o) {
  spline["temperature"] = o.temperature;
  return spline;
}

/// A coupling that maps the kept features too; of one feature, what is left of it.
Json full_coupling(const RecipeOptions& o, int64_t i, const Json& map) {
  if (o.features > 1) return coupling(o, i, conditioned(map, o), map);
  auto alone = elementwise(o, map);
  alone["context"] = o.context;
  if (o.context > 0) alone["net"] = net_of(o);
  return alone;
}

Json autoregressive(const RecipeOptions& o, const Json& map) {
  return {
      {"type", "autoregressive"}, {"features", o.features}, {"context", o.context}, {"map", map}, {"net", net_of(o)}};
}

Json permutation(const RecipeOptions& o, const std::string& kind, int64_t i) {
  return {{"type", "permutation"}, {"features", o.features}, {"kind", kind}, {"seed", o.seed + i}};
}

/// What stands before layer i; `kind` is that of a permutation.
void add_linear(Layers& layers, const RecipeOptions& o, int64_t i, const std::string& kind = "random") {
  check_choice("linear", o.linear, {"lu", "permutation", "orthogonal", "none"});
  const bool several = o.features > 1;  // one feature has no order, and no direction to turn to
  if (o.linear == "lu")
    layers.push_back({{"type", "lu_linear"}, {"features", o.features}, {"permute", "random"}, {"seed", o.seed + i}});
  if (o.linear == "permutation" && several) layers.push_back(permutation(o, kind, i));
  if (o.linear == "orthogonal" && several) layers.push_back({{"type", "orthogonal"}, {"features", o.features}});
}

Json flow(const RecipeOptions& o, const Layers& layers, const Json& base = {{"type", "normal"}}) {
  auto standard = base;
  standard["features"] = o.features;
  return {{"type", "flow"}, {"layers", layers}, {"base", o.base.is_null() ? standard : o.base}};
}

/// Additive couplings, then one scale per feature, to a logistic base.
Json nice(const RecipeOptions& given) {
  const auto o = filled_for_several(
      "nice", given,
      {.layers = 4, .width = 128, .depth = 3, .net = "mlp", .activation = "relu", .mask = "half", .linear = "none"});
  Layers layers;
  for (int64_t i = 0; i < o.layers; ++i) {
    add_linear(layers, o, i);
    layers.push_back(coupling(o, i, {{"type", "additive"}}));
  }
  layers.push_back(elementwise(o, {{"type", "affine"}, {"scale", "exp"}}));
  return flow(o, layers, {{"type", "logistic"}});
}

Json realnvp(const RecipeOptions& given) {
  const auto o = filled_for_several("realnvp", given,
                                    {.layers = 8,
                                     .width = 128,
                                     .depth = 2,
                                     .net = "mlp",
                                     .activation = "relu",
                                     .mask = "alternating",
                                     .linear = "none"});
  Layers layers;
  for (int64_t i = 0; i < o.layers; ++i) {
    add_linear(layers, o, i);
    layers.push_back(affine_coupling(o, i));
  }
  return flow(o, layers);
}

/// Steps of ActNorm, linear map and affine coupling, without the images' multiple scales.
Json glow(const RecipeOptions& given) {
  const auto o = filled_for_several(
      "glow", given,
      {.layers = 8, .width = 128, .depth = 2, .net = "mlp", .activation = "relu", .mask = "half", .linear = "lu"});
  Layers layers;
  for (int64_t i = 0; i < o.layers; ++i) {
    layers.push_back({{"type", "actnorm"}, {"features", o.features}});
    add_linear(layers, o, i);
    layers.push_back(affine_coupling(o, i));
  }
  return flow(o, layers);
}

/// Autoregressive layers with the order of the features turned round between them.
Layers autoregressive_layers(const RecipeOptions& o, const Json& map, bool inverted) {
  Layers layers;
  for (int64_t i = 0; i < o.layers; ++i) {
    if (i > 0) add_linear(layers, o, i, "reverse");
    const auto layer = autoregressive(o, map);
    layers.push_back(inverted ? Json{{"type", "inverse"}, {"layer", layer}} : layer);
  }
  return layers;
}

RecipeOptions affine_autoregressive(const std::string& name, const RecipeOptions& given) {
  return filled_for_several(
      name, given,
      {.layers = 5, .width = 128, .depth = 2, .net = "mlp", .activation = "relu", .linear = "permutation"});
}

Json maf(const RecipeOptions& given) {
  const auto o = affine_autoregressive("maf", given);
  return flow(o, autoregressive_layers(o, affine_of(o), false));
}

Json iaf(const RecipeOptions& given) {
  const auto o = affine_autoregressive("iaf", given);
  return flow(o, autoregressive_layers(o, affine_of(o), true));
}

Json nsf_ar(const RecipeOptions& given) {
  const auto o = filled_for_several("nsf-ar", given,
                                    {.layers = 5,
                                     .width = 128,
                                     .depth = 2,
                                     .net = "residual",
                                     .activation = "relu",
                                     .bins = 8,
                                     .bound = 5,
                                     .temperature = usual_temperature(given, 128),
                                     .linear = "lu"});
  return flow(o, autoregressive_layers(o, conditioned(spline_of(o), o), false));
}

/// With net mlp, mask random and linear none, the architecture of zuko's coupling NSF; as it stands, that of nflows.
Json nsf(const RecipeOptions& given) {
  const auto o = filled("nsf", given,
                        {.layers = 6,
                         .width = 128,
                         .depth = 2,
                         .net = "residual",
                         .activation = "relu",
                         .bins = 8,
                         .bound = 5,
                         .temperature = usual_temperature(given, 128),
                         .mask = "alternating",
                         .linear = "lu"});
  Layers layers;
  for (int64_t i = 0; i < o.layers; ++i) {
    add_linear(layers, o, i);
    layers.push_back(full_coupling(o, i, spline_of(o)));
  }
  return flow(o, layers);
}

/// Circular splines leave the cut of the circle where it is, so the angles are turned between them.
Json ncsf(const RecipeOptions& given) {
  const auto o = filled("ncsf", given,
                        {.layers = 6,
                         .width = 128,
                         .depth = 2,
                         .net = "residual",
                         .activation = "relu",
                         .bins = 8,
                         .temperature = usual_temperature(given, 128),
                         .mask = "alternating",
                         .linear = "none"});
  check_choice("linear", o.linear, {"permutation", "none"});
  Layers layers;
  for (int64_t i = 0; i < o.layers; ++i) {
    layers.push_back(elementwise(o, {{"type", "circular_shift"}}));
    if (o.linear == "permutation" && o.features > 1) {
      layers.push_back(permutation(o, "random", i));
      layers.back()["axis"] = "circle";
    }
    layers.push_back(full_coupling(o, i, {{"type", "rq_spline"}, {"bins", o.bins}, {"tails", "circular"}}));
  }
  const Json torus = {
      {"type", "uniform"}, {"lower", -std::numbers::pi}, {"upper", std::numbers::pi}, {"circular", true}};
  return flow(o, layers, torus);
}

/// Matrices of full rank with smooth rectifiers between them, to be trained by score matching.
Json ebflow(const RecipeOptions& given) {
  const auto o = filled("ebflow", given, {.layers = 2});
  if (o.context > 0) throw SpecError("context", "has no meaning for ebflow");
  Layers layers;
  for (int64_t i = 0; i < o.layers; ++i) {
    if (i > 0) layers.push_back(elementwise(o, {{"type", "smooth_leaky_relu"}}));
    // As Chao et al. start theirs.
    layers.push_back({{"type", "dense_linear"}, {"features", o.features}, {"start", "minus_identity"}});
  }
  return flow(o, layers);
}

/// A spec from an option: JSON, or NAME:key=value.
Json spec_in(const std::string& option, const std::string& text) {
  if (!text.starts_with('{')) return within(option, [&] { return spec_from_text(text); });
  const auto spec = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (spec.is_discarded()) throw SpecError(option, "is no JSON: " + text);
  return spec;
}

/// The stochastic layer after a share lambda of the way from the base to the density, or as the user has it.
Json stochastic(const std::string& kernel, const Json& density, double lambda) {
  auto layer = spec_in("kernel", kernel.empty() ? "metropolis:steps=20,step_size=0.25" : kernel);
  for (const char* key : {"density", "lambda"})
    if (layer.contains(key)) throw SpecError(c10::str("kernel/", key), "is chosen by the recipe");
  layer["density"] = density;
  layer["lambda"] = lambda;
  return layer;
}

/// Pairs of affine couplings with a stochastic layer after each, and one at the base.
Json snf(const RecipeOptions& given) {
  auto plain = given;
  plain.density = plain.kernel = "";
  const auto o = filled_for_several(
      "snf", plain,
      {.layers = 6, .width = 64, .depth = 2, .net = "mlp", .activation = "relu", .mask = "half", .linear = "none"});
  if (given.density.empty()) throw SpecError("density", "is missing: the target that stochastic layers move towards");
  if (o.context > 0) throw SpecError("context", "has no meaning for snf");
  if (o.layers % 2 != 0) throw SpecError("layers", c10::str("snf has couplings in pairs, got ", o.layers));
  const auto density = spec_in("density", given.density);
  const auto pairs = o.layers / 2;
  Layers layers;
  for (auto pair = pairs - 1; pair >= 0; --pair) {
    const double lambda = pairs == 1 ? 1 : static_cast<double>(pair) / static_cast<double>(pairs - 1);
    layers.push_back(stochastic(given.kernel, density, lambda));
    for (int64_t i = 0; i < 2; ++i) {
      add_linear(layers, o, 2 * pair + i);
      layers.push_back(affine_coupling(o, 2 * pair + i));
      // Stretched far, a few points out in the tails carry all the weight; random steps do what the couplings leave.
      layers.back()["map"]["cap"] = 1.0;
    }
  }
  layers.push_back(stochastic(given.kernel, density, 0));
  return flow(o, layers);
}

/// Affine couplings among the features of the data and as many of noise, unless the user says how many.
Json augmented(const RecipeOptions& given) {
  const auto o = filled("augmented", given,
                        {.augment = std::max<int64_t>(1, given.features),
                         .layers = 8,
                         .width = 128,
                         .depth = 2,
                         .net = "mlp",
                         .activation = "relu",
                         .mask = "alternating",
                         .linear = "none"});
  Layers layers{{{"type", "augment"},
                 {"features", o.features},
                 {"noise", at_least(1, "augment", o.augment)},
                 {"context", o.context},
                 {"net", net_of(o)}}};
  auto inner = o;
  inner.features = o.features + o.augment;
  for (int64_t i = 0; i < o.layers; ++i) {
    add_linear(layers, inner, i);
    layers.push_back(affine_coupling(inner, i));
  }
  return flow(inner, layers);
}

/// The same for flows onto `latent` of the features, which has no standard value.
RecipeOptions filled_for_injective(const std::string& name, const RecipeOptions& given, RecipeOptions standard) {
  if (given.latent == 0)
    throw SpecError("latent", c10::str(name, " needs the dimension of its manifold: at least 1 and below the ",
                                       given.features, " features (--latent 2)"));
  if (given.latent < 0 || given.latent >= given.features)
    throw SpecError("latent",
                    c10::str("must be at least 1 and below the ", given.features, " features, got ", given.latent));
  if (given.context > 0) throw SpecError("context", c10::str("injective flows take none; ", name, " got one"));
  standard.latent = given.latent;
  return filled_for_several(name, given, standard);
}

/// A flow whose base has the dimension of the manifold.
Json flow_to_latent(const RecipeOptions& o, const Layers& layers) {
  auto inner = o;
  inner.features = o.latent;
  return flow(inner, layers);
}

Json projection(const RecipeOptions& o) {
  return {{"type", "project"}, {"features", o.features}, {"latent", o.latent}};
}

/// An unconstrained encoder and decoder, to be trained by the objective free_form_injective.
Json injective(const RecipeOptions& given) {
  const auto o =
      filled_for_injective("injective", given, {.width = 256, .depth = 3, .net = "residual", .activation = "silu"});
  const Json net = {{"type", o.net}, {"width", o.width}, {"depth", o.depth}, {"activation", o.activation}};
  return flow_to_latent(
      o, {{{"type", "free_form"}, {"features", o.features}, {"latent", o.latent}, {"encoder", net}, {"decoder", net}}});
}

/// Splines among the latent features; of one, one spline without a network.
void add_latent_couplings(Layers& layers, const RecipeOptions& o) {
  auto inner = o;
  inner.features = o.latent;
  inner.linear = o.latent > 1 ? "lu" : "none";
  inner.bins = 8;
  inner.bound = 5;
  inner.temperature = std::sqrt(static_cast<double>(o.width));
  for (int64_t i = 0; i < o.layers; ++i) {
    add_linear(layers, inner, i);
    layers.push_back(full_coupling(inner, i, spline_of(inner)));
  }
}

/// Affine couplings in R^D, the first d features of what they make, spline couplings in R^d.
Json rectangular(const RecipeOptions& given) {
  const auto o = filled_for_injective(
      "rectangular", given,
      {.layers = 4, .width = 64, .depth = 2, .net = "mlp", .activation = "silu", .mask = "alternating"});
  Layers layers;
  for (int64_t i = 0; i < o.layers; ++i) layers.push_back(affine_coupling(o, i));
  layers.push_back(projection(o));
  add_latent_couplings(layers, o);
  return flow_to_latent(o, layers);
}

/// A conformal embedding, whose volume is a product of scales, and spline couplings in R^d.
Json conformal(const RecipeOptions& given) {
  const auto o = filled_for_injective(
      "conformal", given,
      {.layers = 4, .width = 64, .depth = 2, .net = "mlp", .activation = "silu", .mask = "alternating"});
  Layers layers{{{"type", "conformal"}, {"features", o.features}, {"latent", o.latent}}};
  add_latent_couplings(layers, o);
  return flow_to_latent(o, layers);
}

}  // namespace

const std::vector<Recipe>& all_recipes() {
  static const std::vector<Recipe> all{
      {"nice", "Additive couplings (Dinh et al. 2014, https://arxiv.org/abs/1410.8516).", nice},
      {"realnvp", "Affine couplings (Dinh et al. 2017, https://arxiv.org/abs/1605.08803).", realnvp},
      {"glow", "ActNorm, LU linear, affine coupling (Kingma and Dhariwal 2018, https://arxiv.org/abs/1807.03039).",
       glow},
      {"maf",
       "Masked autoregressive flow: fast densities (Papamakarios et al. 2017, https://arxiv.org/abs/1705.07057).", maf},
      {"iaf", "Inverse autoregressive flow: fast samples (Kingma et al. 2016, https://arxiv.org/abs/1606.04934).", iaf},
      {"nsf", "Rational-quadratic spline couplings (Durkan et al. 2019, https://arxiv.org/abs/1906.04032).", nsf},
      {"nsf-ar", "Autoregressive rational-quadratic splines (Durkan et al. 2019, https://arxiv.org/abs/1906.04032).",
       nsf_ar},
      {"snf", "Affine couplings with stochastic layers between (Wu et al. 2020, https://arxiv.org/abs/2002.06707).",
       snf},
      {"augmented",
       "Affine couplings in a space of more dimensions, by features of noise; its densities are lower bounds (Huang et "
       "al. 2020, https://arxiv.org/abs/2002.07101).",
       augmented},
      {"ncsf", "Circular spline couplings on a torus (Rezende et al. 2020, https://arxiv.org/abs/2002.02428).", ncsf},
      {"ebflow", "Matrices of full rank and smooth rectifiers (Chao et al. 2023, https://arxiv.org/abs/2305.15267).",
       ebflow},
      {"injective",
       "Free-form injective flow onto a manifold of dimension latent (Sorrenson et al. 2024, "
       "https://arxiv.org/abs/2306.01843).",
       injective, true},
      {"rectangular",
       "Rectangular flow: couplings padded with zeros (Caterini et al. 2021, "
       "https://arxiv.org/abs/2106.01413).",
       rectangular, true},
      {"conformal", "Conformal embedding flow (Ross and Cresswell 2021, https://arxiv.org/abs/2106.05275).", conformal,
       true},
      {"glow-image", "Multi-scale flow of images (Kingma and Dhariwal 2018, https://arxiv.org/abs/1807.03039).",
       glow_image, false, true},
      {"eiw",
       "Multi-scale flow of images whose scales are split by learned weights of the channels (Chen et al. 2025, "
       "https://arxiv.org/abs/2407.04958).",
       eiw, false, true},
  };
  return all;
}

Json recipe(const std::string& name, const RecipeOptions& options) {
  std::vector<std::string> known;
  for (const auto& candidate : all_recipes()) known.push_back(candidate.name);
  check_choice("recipe", name, known);
  const auto same = [&](const Recipe& candidate) { return candidate.name == name; };
  return std::find_if(all_recipes().begin(), all_recipes().end(), same)->write(options);
}

}  // namespace diffeo
