#include <iostream>

#include "diffeo/apps/command.h"
#include "diffeo/apps/intervene.h"
#include "diffeo/apps/output.h"
#include "diffeo/apps/signals.h"
#include "diffeo/apps/text.h"
#include "diffeo/flows/model.h"

namespace diffeo::apps {
namespace {

struct Wishes {
  std::string model, output, flow;
  std::vector<int64_t> treatment;
  int64_t count = 1000, batch_size = 16384;
};

int run(const Command& command, const Wishes& wishes) {
  check(wishes.treatment.size() == 1, "--do: expected one value of the treatment, got ", wishes.treatment.size());
  check(!wishes.output.empty() || !wishes.flow.empty(), "option --output is missing; say for example -o samples.h5");
  check(wishes.count > 0, "-n: expected 1 or more, got ", wishes.count);
  check(wishes.batch_size > 0, "--batch-size: expected 1 or more, got ", wishes.batch_size);
  for (const auto* file : {&wishes.output, &wishes.flow})
    if (!file->empty()) check_writable(*file);
  const auto stored = read_intervention(wishes.model);
  const auto place = places_of(*stored.model, wishes.treatment).front();
  const auto flow = stored.model->targets()[place];
  if (!wishes.flow.empty()) {
    save(*flow, wishes.flow, stored.file.columns);
    std::cout << wishes.flow << "  model file of the density alone\n";
  }
  if (wishes.output.empty()) return fine;
  const auto dtype = command.dtype(c10::typeMetaToScalarType(flow->tensor_options().dtype()));
  flow->to(command.device(), dtype);
  TableWriter writer(wishes.output);
  writer.begin("/x", stored.file.columns, dtype);
  writer.attribute("/x", "model", wishes.model);
  writer.attribute("/x", "do", std::to_string(wishes.treatment.front()));
  writer.attribute("/x", "seed", std::to_string(command.common().seed));
  torch::NoGradGuard no_grad;
  for (int64_t done = 0; done < wishes.count; done += wishes.batch_size) {
    stop_if_interrupted();
    writer.append(flow->draw({std::min(wishes.batch_size, wishes.count - done)}).value.cpu());
  }
  writer.finish();
  std::cout << wishes.output << ":/x  " << grouped(wishes.count) << " samples x " << flow->space().size()
            << (flow->space().size() == 1 ? " column\n" : " columns\n");
  return fine;
}

}  // namespace

int intervene_sample(const Arguments& arguments) {
  Wishes wishes;
  Command command("intervene sample", "draw outcomes under a treatment", "MODEL.h5 --do VALUE -n COUNT -o SAMPLES.h5",
                  {"diffeo intervene sample model.h5 --do 1 -n 10000 -o treated.h5 --seed 1",
                   "diffeo intervene sample model.h5 --do 1 --flow treated-flow.h5   # for diffeo evaluate and plot"});
  command.argument("model", wishes.model, "model file of diffeo intervene train");
  command.option("do", wishes.treatment, "the value of the treatment");
  command.option("count,n", wishes.count, "samples to draw");
  command.option("output,o", wishes.output, "HDF5 file to write: /x, with names and units of the outcome", "FILE");
  command.option("flow", wishes.flow, "write the density of this treatment as a model file of its own", "FILE");
  command.option("batch_size", wishes.batch_size, "samples at a time; a part of what a seed means");
  if (!command.parse(arguments)) return fine;
  return run(command, wishes);
}

}  // namespace diffeo::apps
