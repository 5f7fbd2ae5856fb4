#include "diffeo/flows/recipes.h"

#include <numbers>

namespace diffeo {
namespace {

using Layers = std::vector<Json>;

/// The given options with the standard ones where none are given. An option that a recipe has no standard value for
/// is one that it does not understand.
RecipeOptions filled(const std::string& name, const RecipeOptions& given, const RecipeOptions& standard) {
  auto options = given;
  const std::vector<std::string> common{"features", "context", "dropout", "base", "seed"};
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
  at_least(1, "layers", options.layers);
  return options;
}

Json net_of(const RecipeOptions& o) {
  return {
      {"type", o.net}, {"width", o.width}, {"depth", o.depth}, {"activation", o.activation}, {"dropout", o.dropout}};
}

Json spline_of(const RecipeOptions& o) { return {{"type", "rq_spline"}, {"bins", o.bins}, {"bound", o.bound}}; }

/// A coupling that moves, in turn, one part of the features and the other.
Json coupling(const RecipeOptions& o, int64_t i, const Json& map, const Json& kept_map = nullptr) {
  // A random mask is drawn anew for each pair, so that each feature of a pair is moved by one of the two.
  return {{"type", "coupling"},  {"features", o.features}, {"context", o.context}, {"map", map},
          {"net", net_of(o)},    {"mask", o.mask},         {"flip", i % 2 == 0},   {"mask_seed", o.seed + i / 2},
          {"kept_map", kept_map}};
}

/// What stands between couplings.
void add_linear(Layers& layers, const RecipeOptions& o, int64_t i) {
  check_choice("linear", o.linear, {"lu", "permutation", "none"});
  if (o.linear == "lu")
    layers.push_back({{"type", "lu_linear"}, {"features", o.features}, {"permute", "random"}, {"seed", o.seed + i}});
  if (o.linear == "permutation")
    layers.push_back({{"type", "permutation"}, {"features", o.features}, {"kind", "random"}, {"seed", o.seed + i}});
}

Json flow(const RecipeOptions& o, const Layers& layers, const std::string& base = "normal") {
  const Json standard = {{"type", base}, {"features", o.features}};
  return {{"type", "flow"}, {"layers", layers}, {"base", o.base.is_null() ? standard : o.base}};
}

/// Durkan et al., "Neural Spline Flows", 2019, https://arxiv.org/abs/1906.04032: couplings, as in their section 5.1.
Json nsf(const RecipeOptions& given) {
  const auto o = filled("nsf", given,
                        {.layers = 6,
                         .width = 128,
                         .depth = 2,
                         .net = "residual",
                         .activation = "relu",
                         .bins = 8,
                         .bound = 5,
                         .mask = "alternating",
                         .linear = "lu"});
  Layers layers;
  for (int64_t i = 0; i < o.layers; ++i) {
    add_linear(layers, o, i);
    layers.push_back(coupling(o, i, spline_of(o), spline_of(o)));
  }
  return flow(o, layers);
}

}  // namespace

const std::vector<Recipe>& all_recipes() {
  static const std::vector<Recipe> all{
      {"nsf", "Rational-quadratic spline couplings with LU-linear layers between (Durkan et al. 2019).", nsf},
  };
  return all;
}

Json recipe(const std::string& name, const RecipeOptions& options) {
  std::vector<std::string> known;
  for (const auto& candidate : all_recipes()) {
    if (candidate.name == name) return candidate.write(options);
    known.push_back(candidate.name);
  }
  check_choice("recipe", name, known);
  throw std::logic_error("recipe: check_choice let an unknown name pass");
}

}  // namespace diffeo
