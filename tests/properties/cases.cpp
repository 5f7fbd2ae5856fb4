#include "properties/cases.h"

#include <torch/types.h>

#include <cmath>

namespace diffeo::testing {
namespace {

// Layers that round, from whole numbers, are random too, but obey other laws: image_flow_test.cpp has them.
enum class Kind { bijection, injective, random, rounding };

Kind kind_of(const Layer& layer) {
  const auto traits = layer.traits();
  if (layer.spec()["type"] == "variational_dequantization") return Kind::rounding;
  return traits.random ? Kind::random : traits.injective ? Kind::injective : Kind::bijection;
}

std::vector<std::pair<std::string, Json>> every_spec() {
  std::vector<std::pair<std::string, Json>> specs;
  const auto add = [&](const std::string& name, const std::string& type, const Json& options) {
    Json spec = {{"type", type}};
    spec.update(options);
    specs.emplace_back(name, spec);
  };
  std::vector<std::string> schemes;
  for (const auto* layer : all_layers()) {
    for (const auto& example : layer->examples) add(layer->name + "_" + example.name, layer->name, example.spec);
    if (layer->name == "elementwise" || layer->name == "coupling" || layer->name == "autoregressive")
      schemes.push_back(layer->name);
  }
  for (const auto* map : all_univariates()) {
    for (const auto& example : map->examples) {
      Json spec = {{"type", map->name}};
      spec.update(example.spec);
      const auto built = build_univariate(spec);
      for (const auto& scheme : schemes) {
        if (scheme != "elementwise" && built->parameters() == 0) continue;
        if (scheme == "autoregressive" && !built->separable()) continue;
        Json options = {{"features", 3}, {"map", spec}};
        if (scheme != "elementwise") options["net"] = {{"width", 8}, {"activation", "tanh"}};
        if (scheme == "coupling" && !built->domain().same_as(built->codomain())) options["kept_map"] = spec;
        add(scheme + "_of_" + map->name + "_" + example.name, scheme, options);
      }
    }
  }
  return specs;
}

std::vector<Case> cases_of(Kind kind) {
  std::vector<Case> cases;
  for (const auto& [name, spec] : every_spec()) {
    if (kind_of(*build_layer(spec)) != kind) continue;
    for (auto dtype : {torch::kFloat32, torch::kFloat64})
      cases.push_back({name + (dtype == torch::kFloat32 ? "_f32" : "_f64"), spec, dtype});
  }
  if (!at::hasCUDA()) return cases;
  const auto on_cpu = cases.size();
  for (size_t i = 0; i < on_cpu; ++i)
    cases.push_back({cases[i].name + "_cuda", cases[i].spec, cases[i].dtype, torch::kCUDA});
  return cases;
}

}  // namespace

void PrintTo(const Case& c, std::ostream* out) { *out << c.name << " " << c.spec.dump(); }

std::vector<Case> every_case() { return cases_of(Kind::bijection); }
std::vector<Case> injective_cases() { return cases_of(Kind::injective); }
std::vector<Case> random_cases() { return cases_of(Kind::random); }

LayerPtr build(const Case& c) {
  torch::manual_seed(1);
  auto layer = build_layer(c.spec);
  layer->to(c.device, c.dtype);
  torch::NoGradGuard no_grad;
  for (auto& parameter : layer->parameters()) parameter.add_(torch::randn_like(parameter), 0.3);
  layer->eval();
  return layer;
}

Tensor points_in(const Space& space, std::vector<int64_t> batch, const torch::TensorOptions& options) {
  auto shape = batch;
  shape.push_back(space.size());
  auto points = torch::randn(shape, options);
  for (int64_t i = 0; i < space.size(); ++i) {
    auto column = points.select(-1, i);
    const auto [lower, upper, circular] = space.axes[i];
    if (std::isfinite(lower) && std::isfinite(upper))
      column.copy_(lower + (upper - lower) * (0.02 + 0.96 * torch::rand_like(column)));
    else if (std::isfinite(lower))
      column.copy_(lower + 0.05 + column.abs());
    else if (std::isfinite(upper))
      column.copy_(upper - 0.05 - column.abs());
    else
      column.mul_(1.5);
  }
  shape.pop_back();
  shape.insert(shape.end(), space.event.begin(), space.event.end());
  return points.reshape(shape);
}

double tolerance(torch::Dtype dtype) { return dtype == torch::kFloat64 ? 1e-9 : 2e-4; }

}  // namespace diffeo::testing
