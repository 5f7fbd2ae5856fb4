#pragma once

#include <functional>
#include <string>
#include <vector>

#include "diffeo/layers/base/univariate.h"

namespace diffeo {

/// A small instance of something registered, which every property test runs and the docs show.
struct Example {
  std::string name;  ///< letters, digits and underscores
  Json spec;         ///< without "type"
};

/// How the registry, the spec reader, the docs and the tests know a kind of Product (Layer, Univariate, ...).
template <class Product>
struct Entry {
  std::string name;               ///< the "type" of its specs
  std::string summary;            ///< one sentence, with the paper
  std::string equation;           ///< what it computes, as a line of text; for a layer its log determinant too
  std::string cost;               ///< of a layer: what forward and inverse take for a row
  std::vector<FieldHelp> fields;  ///< its options
  std::function<std::shared_ptr<Product>(const Json& spec)> build;
  std::vector<Example> examples;
};

using LayerEntry = Entry<Layer>;
using UnivariateEntry = Entry<const Univariate>;

/// Every registered layer and map, in alphabetical order. CMake finds the registrations in the sources.
const std::vector<const LayerEntry*>& all_layers();
const std::vector<const UnivariateEntry*>& all_univariates();

/// Builds `{"type": name, ...options}`. Throws SpecError naming the place and the known names or keys.
LayerPtr build_layer(const Json& spec);
UnivariatePtr build_univariate(const Json& spec);

/// A deep copy: the same structure, dtype and device, its own tensors with the same values.
LayerPtr clone(const Layer& layer);

/// An Entry for a class with a Described Options and a constructor from it.
template <class Product, class Made>
Entry<Product> entry(std::string name, std::string summary, std::string equation, std::string cost,
                     std::vector<Example> examples) {
  return {std::move(name),
          std::move(summary),
          std::move(equation),
          std::move(cost),
          describe<typename Made::Options>(),
          [](const Json& spec) { return std::make_shared<Made>(read<typename Made::Options>(spec)); },
          std::move(examples)};
}

/// Finds the entry that a spec's "type" names. `kind` is the word for it in errors.
template <class Product>
const Entry<Product>& find_entry(const std::vector<const Entry<Product>*>& entries, const Json& spec,
                                 const char* kind) {
  if (!spec.is_object() || !spec.contains("type") || !spec["type"].is_string())
    throw SpecError("", c10::str("expected an object with a \"type\" that names a ", kind, ", got ", spec.dump()));
  std::vector<std::string> known;
  for (const auto* candidate : entries) {
    if (candidate->name == spec["type"]) return *candidate;
    known.push_back(candidate->name);
  }
  const auto name = spec["type"].get<std::string>();
  throw SpecError("type", c10::str("unknown ", kind, " '", name, "'", suggestion(name, known), "; known are ",
                                   c10::Join(", ", known)));
}

}  // namespace diffeo

/// Registers a layer class under `name`:
///
///   DIFFEO_LAYER(name, Class, "Summary (paper).", "equation", "cost", {"example", {{"features", 4}}}, ...);
///
/// Write it at the start of a line at the bottom of the layer's own source file: that is all it takes.
#define DIFFEO_LAYER(name, Class, summary, equation, cost, ...) \
  extern const LayerEntry layer_##name;                         \
  const LayerEntry layer_##name = entry<Layer, Class>(#name, summary, equation, cost, {__VA_ARGS__})

/// The same for a univariate map. Its examples run through the elementwise, coupling and autoregressive schemes.
#define DIFFEO_UNIVARIATE(name, Class, summary, equation, ...) \
  extern const UnivariateEntry univariate_##name;              \
  const UnivariateEntry univariate_##name = entry<const Univariate, Class>(#name, summary, equation, "", {__VA_ARGS__})
