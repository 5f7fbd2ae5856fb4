#include <iostream>

#include "diffeo/apps/inspect.h"
#include "diffeo/apps/text.h"
#include "diffeo/flows/recipes.h"
#include "diffeo/samplers/target.h"
#include "diffeo/trainers/objective.h"

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

/// How good its log determinant is and what its inverse is: of the layer of the first example.
std::string exactness(const LayerEntry& entry) {
  Json spec = {{"type", entry.name}};
  spec.update(entry.examples.at(0).spec);
  const auto traits = build_layer(spec)->traits();
  const auto formula = [](bool closed, bool quick) {
    return !closed ? "numerical" : quick ? "a formula" : "a formula, feature by feature";
  };
  return c10::str("forward ", formula(traits.closed_forward, traits.quick_forward), "; inverse ",
                  formula(traits.closed_inverse, traits.quick_inverse), "; log determinant ",
                  traits.random           ? "random: log P(back) - log P(there)"
                  : !traits.exact_log_det ? "estimated"
                                          : "exact",
                  traits.constant_log_det ? ", the same for all points" : "",
                  traits.injective ? "; onto fewer features: 1/2 log det J^T J" : "");
}

template <class Product>
std::string exactness(const Entry<Product>&) {
  return {};
}

/// What a page says about something registered before its options.
template <class Product>
void print_about(const Entry<Product>& entry, const std::string& mark) {
  const auto line = [&](const char* what, const std::string& text) {
    if (!text.empty()) std::cout << mark << what << ": " << text << '\n';
  };
  line("equation", entry.equation.empty() || mark.empty() ? entry.equation : "`" + entry.equation + "`");
  line("exactness", exactness(entry));
  line("cost for a row", entry.cost);
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
      std::cout << name << " (" << kind << "): " << entry->summary << '\n';
      print_about(*entry, "");
      std::cout << "\noptions:\n";
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
      print_about(*entry, "- ");
      if (!entry->equation.empty()) std::cout << '\n';
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

void describe_objectives() {
  std::cout << "what training can minimise, for diffeo train --objective NAME or NAME:key=value,key=value\n";
  for (const auto* objective : all_objectives()) {
    std::cout << '\n' << objective->name << ": " << objective->summary << '\n';
    print_fields(objective->fields);
  }
}

void describe_targets() {
  std::cout << "densities to sample, for diffeo sample-target NAME or NAME:key=value,key=value\n";
  for (const auto* target : all_targets()) {
    std::cout << '\n' << target->name << ": " << target->summary << "\n  " << target->equation << '\n';
    print_fields(target->fields);
  }
}

}  // namespace diffeo::apps
