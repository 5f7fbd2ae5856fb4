#include "diffeo/bench/works.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "diffeo/flows/recipes.h"

namespace diffeo::bench {
namespace {

std::vector<Work> read_works() {
  const char* given = std::getenv("DIFFEO_WORKS");  // where the source tree has moved since it was built
  const std::string name = given ? given : DIFFEO_WORKS;
  std::ifstream file(name);
  check(file.good(), name, ": cannot be read");
  std::vector<Work> works;
  const auto table = Json::parse(file);
  for (const auto& [name, sizes] : table.items())
    works.push_back(
        {name, sizes["flow"], sizes["features"], sizes["layers"], sizes["width"], sizes["bins"], sizes["batch"]});
  return works;
}

/// The couplings among the layers of a spec.
template <class Change>
void for_each_coupling(Json& spec, const Change& change) {
  for (auto& layer : spec["layers"])
    if (layer["type"] == "coupling") change(layer);
}

Json spline_couplings(RecipeOptions options, const std::string& like) {
  const bool alternating = options.net == "residual";
  options.mask = alternating ? "alternating" : "half";
  options.linear = like == "nflows" ? "lu" : like == "plain" ? "none" : "permutation";
  if (like == "flowjax") ++options.bins;  // flowjax counts inner knots
  auto spec = recipe("nsf", options);
  for_each_coupling(spec, [&](Json& coupling) {
    if (like != "nflows" && like != "zuko") coupling["kept_map"] = nullptr;
    if (like == "flowjax") coupling["flip"] = false;
  });
  return spec;
}

Json affine_couplings(RecipeOptions options, const std::string& like) {
  options.mask = like == "nflows" ? "alternating" : "half";
  options.linear = like == "flowjax" || like == "FrEIA" ? "permutation" : "none";
  auto spec = recipe("realnvp", options);
  if (like == "flowjax" || like == "FrEIA") for_each_coupling(spec, [](Json& coupling) { coupling["flip"] = false; });
  if (like != "FrEIA") return spec;
  auto layers = Json::array();
  for (const auto& layer : spec["layers"]) {
    layers.push_back(layer);
    if (layer["type"] == "coupling")
      layers.push_back(
          {{"type", "elementwise"}, {"features", options.features}, {"map", {{"type", "affine"}, {"scale", "exp"}}}});
  }
  spec["layers"] = layers;
  return spec;
}

}  // namespace

const std::vector<Work>& all_works() {
  static const auto works = read_works();
  return works;
}

const Work& work_named(const std::string& name) {
  std::string known;
  for (const auto& work : all_works()) {
    if (work.name == name) return work;
    known += " " + work.name;
  }
  throw Error(c10::str("unknown work ", name, "; there are", known));
}

FlowPtr flow_of(const Work& work, const std::string& like, const std::string& precision) {
  static const std::map<std::string, std::set<std::string>> known{
      {"nsf", {"plain", "nflows", "zuko", "glasflow", "flowjax"}},
      {"maf", {"plain", "nflows", "zuko", "flowjax"}},
      {"realnvp", {"plain", "nflows", "FrEIA", "flowjax"}}};
  check(known.contains(work.flow) && known.at(work.flow).contains(like), work.name, ": there is no flow like ", like);
  RecipeOptions options{.features = work.features, .layers = work.layers, .width = work.width, .depth = 2};
  if (precision != "full") options.precision = precision;
  options.net = like == "nflows" || like == "glasflow" ? "residual" : "mlp";
  if (work.flow == "maf") return build_flow(recipe("maf", options));
  if (work.flow == "realnvp") return build_flow(affine_couplings(options, like));
  options.bins = work.bins;
  options.bound = 3;
  return build_flow(spline_couplings(options, like));
}

int64_t count_of_parameters(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const auto& parameter : module.parameters()) count += parameter.numel();
  return count;
}

}  // namespace diffeo::bench
