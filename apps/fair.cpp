#include "diffeo/apps/fair.h"

#include <iostream>

namespace diffeo::apps {
namespace {

struct Part {
  const char *name, *summary;
  int (*run)(const Arguments&);
};
constexpr Part parts[] = {{"train", "learn representations that hide a group", fair_train},
                          {"encode", "write the representations of a table's rows", fair_encode},
                          {"certify", "bound what any adversary can tell from them, and try", fair_certify}};

void print_help() {
  std::cout << "diffeo fair: fair normalizing flows, representations with a certificate\n\n"
               "usage: diffeo fair train|encode|certify [arguments]\n\n";
  for (const auto& part : parts)
    std::cout << "  " << part.name << std::string(10 - std::string(part.name).size(), ' ') << part.summary << '\n';
  std::cout << "\nexamples:\n"
               "  diffeo fair train law.h5 --sensitive /train/sensitive --label /train/label --gamma 0,0.1,0.5 -o "
               "fair.h5\n"
               "  diffeo fair certify fair.h5 law.h5 --csv tradeoff.csv --plot tradeoff.png\n"
               "  diffeo fair encode fair.h5 law.h5 --gamma 0.1 -o encoded.h5\n\n"
               "diffeo fair train --help and the like tell more.\n";
}

}  // namespace

FairInputs read_fair_inputs(const std::string& model_file, const std::string& data_file, torch::Dtype dtype) {
  auto file = read_model(model_file);
  auto model = fair_model_from(file, model_file);
  auto options = within(model_file + ":/metadata/data",
                        [&] { return read<DataOptions>(file.metadata.value("data", Json::object())); });
  options.file = data_file;
  options.columns.clear();
  for (const auto& column : file.columns) options.columns.push_back(column.name);
  auto splits = load_splits(options, dtype);
  FairInputs inputs{std::move(model), std::move(file), std::move(splits), {}, {}, {}};
  const auto rows = [&](const DatasetPtr& data, const char* part) {
    return fair_rows(data.get(), inputs.model.criterion, inputs.model.groups, data_file + ": " + part + " rows");
  };
  inputs.train = rows(inputs.splits.train, "training");
  inputs.valid = rows(inputs.splits.valid, "validation");
  inputs.test = rows(inputs.splits.test, "test");
  return inputs;
}

int fair(const Arguments& arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help") {
    print_help();
    return arguments.empty() ? bad_input : fine;
  }
  std::vector<std::string> known;
  for (const auto& part : parts) {
    if (arguments[0] == part.name) return part.run({arguments.begin() + 1, arguments.end()});
    known.push_back(part.name);
  }
  throw Error(c10::str("unknown part '", arguments[0], "'", suggestion(arguments[0], known), "; known are ",
                       c10::Join(", ", known)));
}

}  // namespace diffeo::apps
