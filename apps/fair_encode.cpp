#include <iostream>

#include "diffeo/apps/command.h"
#include "diffeo/apps/fair.h"
#include "diffeo/apps/output.h"
#include "diffeo/apps/text.h"
#include "diffeo/layers/base/random.h"

namespace diffeo::apps {
namespace {

struct Wishes {
  std::string model, data, output;
  double gamma = 0;
};

std::vector<Column> numbered(const std::string& name, int64_t count) {
  std::vector<Column> columns;
  for (int64_t i = 0; i < count; ++i)
    columns.push_back({.name = name + std::to_string(i), .unit = "", .discrete = false});
  return columns;
}

int run(const Command& command, Wishes& wishes) {
  check_writable(wishes.output);
  auto inputs = read_fair_inputs(wishes.model, wishes.data, command.dtype(torch::kFloat32));
  auto& model = inputs.model;
  check(!model.gammas.empty(), wishes.model, ": holds no encoders yet");
  check(command.given("gamma") || model.gammas.size() == 1, "--gamma: ", wishes.model,
        " has models of several trade-offs; choose one of ", c10::Join(", ", model.gammas));
  const auto place = command.given("gamma") ? within("--gamma", [&] { return model.place_of(wishes.gamma); }) : 0;
  const auto device = command.device();
  const SeedGuard seed(command.common().seed, device);
  const auto encoded = [&](const FairRows& rows) -> Tensor {
    const at::NoGradGuard no_grad;
    if (model.method == "matching") {
      const auto cells = cells_of(*model.cells, rows);
      return model.cells->one_hot(model.matching.encode(cells.x, cells.group, model.gammas[place]));
    }
    auto& flow = *model.flows[place];
    flow.to(device, command.dtype(torch::kFloat32));
    const auto points = points_of(*model.scales, rows, device);
    return flow.encode_rows(points.x, points.group);
  };
  TableWriter writer(wishes.output);
  int64_t written = 0;
  for (const auto& [name, rows] :
       {std::pair{"train", &inputs.train}, std::pair{"valid", &inputs.valid}, std::pair{"test", &inputs.test}}) {
    if (rows->size() == 0) continue;
    const auto z = encoded(*rows);
    const auto group = std::string("/") + name;
    writer.begin(group + "/x", numbered("z", z.size(1)), z.scalar_type());
    writer.append(z);
    for (const auto& [object, values] : {std::pair{"/sensitive", &rows->group}, std::pair{"/label", &rows->label}}) {
      writer.begin(group + object, {{.name = object + 1, .unit = "", .discrete = true}}, torch::kLong, true);
      writer.append(*values);
    }
    written += z.size(0);
  }
  writer.attribute("/", "encoder", c10::str(wishes.model, ", gamma ", model.gammas[place]));
  writer.finish();
  std::cout << grouped(written) << " rows of gamma " << model.gammas[place] << " -> " << wishes.output << '\n';
  return fine;
}

}  // namespace

int fair_encode(const Arguments& arguments) {
  Wishes wishes;
  Command command("fair encode", "write the representations of a table's rows",
                  "MODEL.h5 DATA.h5 [--gamma X] -o ENCODED.h5",
                  {"diffeo fair encode fair.h5 law.h5 --gamma 0.1 -o encoded.h5"});
  command.argument("model", wishes.model, "model file of diffeo fair train");
  command.argument("data", wishes.data, "HDF5 file with the same objects and columns as the training data");
  command.option("output,o", wishes.output,
                 "HDF5 file to write: /train/x, /train/sensitive, /train/label, and valid and test alike", "FILE");
  command.option("gamma", wishes.gamma, "which of the model's trade-offs");
  if (!command.parse(arguments)) return fine;
  command.require("output", "-o encoded.h5");
  return run(command, wishes);
}

}  // namespace diffeo::apps
