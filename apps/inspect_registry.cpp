#include <iomanip>
#include <iostream>

#include "diffeo/apps/inspect.h"
#include "diffeo/flows/distribution.h"

namespace diffeo::apps {
namespace {

template <class Product>
void list(const std::string& heading, const std::vector<const Entry<Product>*>& entries) {
  std::cout << heading << '\n';
  for (const auto* entry : entries)
    std::cout << "  " << std::left << std::setw(22) << entry->name << entry->summary << '\n';
  std::cout << '\n';
}

template <class Product>
bool describe(const std::string& kind, const std::vector<const Entry<Product>*>& entries, const std::string& name) {
  for (const auto* entry : entries) {
    if (entry->name != name) continue;
    std::cout << name << " (" << kind << "): " << entry->summary << "\n\n";
    for (const auto& field : entry->fields) {
      std::cout << "  " << std::left << std::setw(22) << field.name << field.kind << ": " << field.help
                << (field.standard.empty() ? " (required)" : " (default " + field.standard + ")") << '\n';
    }
    std::cout << "\nexamples:\n";
    for (const auto& example : entry->examples) {
      Json spec = {{"type", name}};
      spec.update(example.spec);
      std::cout << "  " << std::left << std::setw(22) << example.name << spec.dump() << '\n';
    }
    std::cout << '\n';
    return true;
  }
  return false;
}

template <class Product>
void add_names(const std::vector<const Entry<Product>*>& entries, std::vector<std::string>& names) {
  for (const auto* entry : entries) names.push_back(entry->name);
}

}  // namespace

void describe_registered(const std::string& name) {
  if (name.empty()) {
    list("layers", all_layers());
    list("maps of one variable, for the schemes coupling, autoregressive and elementwise", all_univariates());
    list("base distributions", all_distributions());
    std::cout << "diffeo inspect --layers NAME tells the options of one of them.\n";
    return;
  }
  bool found = describe("layer", all_layers(), name);
  found |= describe("map", all_univariates(), name);
  found |= describe("distribution", all_distributions(), name);
  if (found) return;
  std::vector<std::string> known;
  add_names(all_layers(), known);
  add_names(all_univariates(), known);
  add_names(all_distributions(), known);
  throw Error(c10::str("no layer, map or distribution is called '", name, "'", suggestion(name, known),
                       " (diffeo inspect --layers lists all)"));
}

}  // namespace diffeo::apps
