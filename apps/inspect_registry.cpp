#include <iostream>

#include "diffeo/apps/inspect.h"
#include "diffeo/apps/text.h"
#include "diffeo/flows/recipes.h"

namespace diffeo::apps {
namespace {

/// Calls `visit(entries, kind, heading)` for each kind of registered thing.
template <class Visit>
void each_kind(Visit&& visit) {
  visit(all_layers(), "layer", "Layers");
  visit(all_univariates(), "map", "Maps of one variable, for the schemes coupling, autoregressive and elementwise");
  visit(all_distributions(), "distribution", "Base distributions");
}

void print_fields(const std::vector<FieldHelp>& fields) {
  Columns table("lll");
  for (const auto& field : fields)
    table.row({field.name, field.kind,
               field.help + (field.standard.empty() ? " (required)" : " (default " + field.standard + ")")});
  table.print();
}

template <class Product>
Json spec_of(const Entry<Product>& entry, const Example& example) {
  Json spec = {{"type", entry.name}};
  spec.update(example.spec);
  return spec;
}

}  // namespace

void describe_registered(const std::string& name) {
  std::vector<std::string> known;
  bool found = false;
  each_kind([&](const auto& entries, const std::string& kind, const std::string& heading) {
    Columns table("ll");
    for (const auto* entry : entries) {
      known.push_back(entry->name);
      table.row({entry->name, entry->summary});
      if (entry->name != name) continue;
      found = true;
      std::cout << name << " (" << kind << "): " << entry->summary << "\n\noptions:\n";
      print_fields(entry->fields);
      std::cout << "\nexamples:\n";
      for (const auto& example : entry->examples) std::cout << "  " << spec_of(*entry, example).dump() << '\n';
    }
    if (!name.empty()) return;
    std::cout << heading << '\n';
    table.print();
    std::cout << '\n';
  });
  if (name.empty())
    std::cout << "diffeo inspect --layers NAME tells the options of one of them, with examples.\n";
  else if (!found)
    throw Error(c10::str("no layer, map or distribution is called '", name, "'", suggestion(name, known),
                         " (diffeo inspect --layers lists all)"));
}

void document_registered() {
  std::cout
      << "# Layers\nMade by `diffeo inspect --layers --markdown` from what is registered. Every example stands in the "
         "property tests.\n";
  each_kind([](const auto& entries, const std::string&, const std::string& heading) {
    std::cout << "\n## " << heading << '\n';
    for (const auto* entry : entries) {
      std::cout << "\n### " << entry->name << '\n' << entry->summary << "\n\n";
      if (!entry->fields.empty()) std::cout << "| option | is | default | meaning |\n| --- | --- | --- | --- |\n";
      for (const auto& field : entry->fields)
        std::cout << "| `" << field.name << "` | " << field.kind << " | "
                  << (field.standard.empty() ? "required" : "`" + field.standard + "`") << " | " << field.help
                  << " |\n";
      if (!entry->examples.empty()) std::cout << "\n```json\n";
      for (const auto& example : entry->examples) std::cout << spec_of(*entry, example).dump() << '\n';
      if (!entry->examples.empty()) std::cout << "```\n";
    }
  });
}

void describe_recipes() {
  Columns table("ll");
  for (const auto& recipe : all_recipes()) table.row({recipe.name, recipe.summary});
  std::cout << "named flows, for diffeo train --flow NAME\n";
  table.print();
  std::cout << "\noptions, for those where they have a meaning; 0 or empty: the flow's own default\n";
  auto fields = describe<RecipeOptions>();
  std::erase_if(fields, [](const FieldHelp& field) { return field.name == "features" || field.name == "context"; });
  Columns options("ll");
  for (const auto& field : fields) options.row({"--" + field.name, field.help});
  options.print();
}

}  // namespace diffeo::apps
