#include <cmath>
#include <iostream>

#include "diffeo/apps/inspect.h"
#include "diffeo/apps/text.h"
#include "diffeo/data/splits.h"
#include "diffeo/flows/model.h"
#include "diffeo/layers/sequential/sequential.h"
#include "diffeo/trainers/fit.h"

namespace diffeo::apps {
namespace {

int64_t parameters_in(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const auto& parameter : module.parameters()) count += parameter.numel();
  return count;
}

/// The fields of whatever is registered under the "type" of a spec; none if there is nothing of the name.
std::vector<FieldHelp> fields_of(const Json& spec) {
  const auto type = spec.value("type", std::string());
  for (const auto* entry : all_layers())
    if (entry->name == type) return entry->fields;
  for (const auto* entry : all_univariates())
    if (entry->name == type) return entry->fields;
  for (const auto* entry : all_distributions())
    if (entry->name == type) return entry->fields;
  return {};
}

std::string differences(const Json& values, const std::vector<FieldHelp>& fields);

/// A value of a spec in few words: what is like the standard value, and what is long, is left out.
std::string brief(const Json& value, const Json& standard) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array() && value.dump().size() > 30) return c10::str("[", value.size(), " values]");
  if (!value.is_object()) return value.dump();
  std::string inside;
  if (const auto fields = fields_of(value); !fields.empty()) {
    inside = differences(value, fields);
  } else {
    for (const auto& [key, item] : value.items())
      if (key != "type" && (!standard.is_object() || standard.value(key, Json()) != item))
        inside += (inside.empty() ? "" : ", ") + key + " " + brief(item, Json());
  }
  const auto type = value.value("type", std::string());
  return inside.empty() ? type : type + "(" + inside + ")";
}

/// The options that are not the defaults.
std::string differences(const Json& values, const std::vector<FieldHelp>& fields) {
  std::string text;
  for (const auto& field : fields) {
    if (!values.contains(field.name)) continue;
    const auto standard = field.standard.empty() ? Json() : Json::parse(field.standard);
    if (values[field.name] != standard)
      text += (text.empty() ? "" : ", ") + field.name + " " + brief(values[field.name], standard);
  }
  return text;
}

void print_columns(const std::string& heading, const std::vector<Column>& columns) {
  if (columns.empty()) return;
  std::vector<std::string> names;
  for (const auto& column : columns)
    names.push_back(column.name + (column.unit.empty() ? "" : " [" + column.unit + "]"));
  if (names.size() > 40) names.resize(40), names.push_back(c10::str("... (", columns.size(), " in all)"));
  std::cout << heading << c10::Join(", ", names) << '\n';
}

void print_history(const ModelFile& model) {
  std::vector<double> losses, valid_losses;
  const auto value = [](const Json& item, const char* key) {
    return item.contains(key) && item[key].is_number() ? item[key].get<double>() : std::nan("");
  };
  const Json* best = nullptr;
  for (const auto& item : model.history) {
    losses.push_back(value(item, "loss"));
    valid_losses.push_back(value(item, "valid_loss"));
    if (!best || value(item, "valid_loss") < value(*best, "valid_loss")) best = &item;
  }
  if (losses.empty()) return;
  const auto& last = model.history.back();
  std::cout << "\ntraining: " << losses.size() << " evaluations in " << last.value("step", int64_t{0}) << " steps, "
            << last.value("epoch", int64_t{0}) << " epochs, " << duration(value(last, "seconds")) << '\n';
  std::cout << "  loss        " << curve(losses, 60) << "  " << number(losses.front()) << " -> "
            << number(losses.back()) << " nats\n";
  if (!std::isnan(value(*best, "valid_loss")))
    std::cout << "  validation  " << curve(valid_losses, 60) << "  best " << number(value(*best, "valid_loss"))
              << " nats at step " << best->value("step", int64_t{0}) << '\n';
}

/// Where the model comes from: what the program that made it noted.
void print_origin(const Json& metadata) {
  for (const auto& [key, value] : metadata.items()) {
    auto text = value.is_string() ? value.get<std::string>() : value.dump();
    if (key == "data") text = differences(value, describe<DataOptions>());
    if (key == "fit") text = differences(value, describe<FitOptions>());
    if (key == "test" && value.is_object())
      text = c10::str("log-likelihood ", number(value.value("log_likelihood", std::nan("")), 6), " +- ",
                      number(value.value("standard_error", std::nan("")), 2), " nats on ",
                      value.value("rows", int64_t{0}), " rows");
    const bool nothing = value.empty() || value == 0.0 || text.empty();
    if (!nothing || value.is_boolean()) std::cout << "  " << key << ": " << text << '\n';
  }
}

/// A model of several networks, which other subcommands read: its parts by the first word of their tensors' names.
void describe_parts(const std::string& file, const ModelFile& model) {
  std::cout << file << ": model file, format " << model.version << ", of type " << brief(model.spec["type"], Json())
            << '\n';
  print_columns("  columns: ", model.columns);
  print_columns("  context: ", model.context_columns);
  print_origin(model.metadata);
  for (const auto& [key, value] : model.spec.items())
    if (key != "type") std::cout << "  " << key << ": " << brief(value, Json()) << '\n';
  std::vector<std::pair<std::string, int64_t>> parts;
  for (const auto& [name, tensor] : model.state) {
    const auto part = name.substr(0, name.find('.'));
    auto found = std::find_if(parts.begin(), parts.end(), [&](const auto& one) { return one.first == part; });
    if (found == parts.end()) found = parts.insert(found, {part, 0});
    found->second += tensor.numel();
  }
  std::cout << "\nparts and the numbers in them\n";
  Columns table("lr");
  for (const auto& [part, count] : parts) table.row({part, grouped(count)});
  table.print();
  print_history(model);
}

}  // namespace

void describe_model(const std::string& file) {
  const auto model = read_model(file);
  if (model.spec.is_object() && model.spec.value("type", Json("flow")) != "flow") return describe_parts(file, model);
  const auto flow = flow_from(model, file);
  std::cout << file << ": model file, format " << model.version << '\n'
            << "  density on " << to_string(flow->space())
            << (flow->context_size() > 0 ? c10::str(", given a context of ", flow->context_size(), " values") : "")
            << '\n'
            << "  " << grouped(parameters_in(*flow)) << " parameters in "
            << name_of(c10::typeMetaToScalarType(flow->tensor_options().dtype())) << '\n';
  print_columns("  columns: ", model.columns);
  print_columns("  context: ", model.context_columns);
  print_origin(model.metadata);

  std::cout << "\nlayers, the first nearest to the data, and the base distribution\n";
  Columns table("rlrl");
  table.row({"", "type", "parameters", "options that are not the defaults"});
  const auto* chain = dynamic_cast<const Sequential*>(flow->layers().get());
  const auto layers = chain ? chain->layers() : std::vector{flow->layers()};
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto spec = layers[i]->spec();
    table.row({std::to_string(i), spec["type"].get<std::string>(), grouped(parameters_in(*layers[i])),
               differences(spec, fields_of(spec))});
  }
  const auto base = flow->base()->spec();
  table.row({"base", base["type"].get<std::string>(), grouped(parameters_in(*flow->base())),
             differences(base, fields_of(base))});
  table.print();

  print_history(model);
  if (!model.training.is_null()) std::cout << "  holds what diffeo train --resume needs to go on\n";
}

}  // namespace diffeo::apps
