#include <cmath>
#include <iostream>

#include "diffeo/apps/command.h"
#include "diffeo/apps/output.h"
#include "diffeo/apps/progress.h"
#include "diffeo/apps/signals.h"
#include "diffeo/apps/tables.h"
#include "diffeo/apps/text.h"
#include "diffeo/data/table.h"
#include "diffeo/flows/model.h"
#include "diffeo/flows/recipes.h"
#include "diffeo/layers/stochastic/build_kernel.h"
#include "diffeo/samplers/annealed.h"
#include "diffeo/samplers/importance.h"
#include "diffeo/samplers/target.h"
#include "diffeo/trainers/path_kl.h"

namespace diffeo::apps {
namespace {

struct Wishes {
  std::string target, flow, kernel, base, data, output, save;
  int64_t count = 10000, blocks = 10, batch_size = 16384, train_steps = 0, train_batch = 256, layers = 6, width = 64;
  double learning_rate = 5e-3, mixture = -1;
  std::vector<double> schedule, divide;
  bool resample = false;
};

constexpr double fewest_to_trust = 100;  // effective samples
constexpr const char* standard_kernel = "hmc:steps=4,leapfrog=5,step_size=0.15";

Command arguments_of(Wishes& wishes) {
  Command command(
      "sample-target", "draw weighted samples of a density known up to a constant", "TARGET -n COUNT -o SAMPLES.h5",
      {"diffeo sample-target double-well -n 100000 -o samples.h5           # annealed importance sampling",
       "diffeo sample-target double-well:features=5 --kernel metropolis:steps=10,step_size=0.25 -o samples.h5",
       "diffeo sample-target funnel --blocks 40 --kernel mala:step_size=0.02,target_acceptance=0.6 -o samples.h5",
       "diffeo sample-target double-well --train-steps 600 --save model.h5 -o samples.h5   # a stochastic flow",
       "diffeo sample-target double-well --flow model.h5 -n 100000 -o samples.h5",
       "diffeo sample-target double-well --divide 0,0 -o samples.h5        # the free energy of left less right",
       "diffeo sample-target plugin:library=./libmine.so -o samples.h5     # a density of your own"});
  command.argument("target", wishes.target, "NAME or NAME:key=value,key=value (diffeo inspect --targets)");
  command.option("count,n", wishes.count, "samples to draw");
  command.option("output,o", wishes.output, "HDF5 file to write: /x and /log_weight, in nats", "FILE");
  command.option("resample", wishes.resample,
                 "write /resampled too: as many samples as the weights are worth, drawn by weight, without weights");
  command.option("divide", wishes.divide,
                 "FEATURE,VALUE: print the free energy of where the feature is below, less that of where it is above");
  command.option("batch_size", wishes.batch_size, "samples at a time; a part of what a seed means");
  command.option("kernel", wishes.kernel,
                 c10::str("the stochastic layers: ", c10::Join(", ", kernel_names()),
                          ", with their options as :key=value (default ", standard_kernel,
                          "; in a flow, metropolis:steps=20,step_size=0.25)"),
                 "NAME");
  command.option("blocks", wishes.blocks, "annealing: stochastic layers, at even steps from the base to the target");
  command.option("schedule", wishes.schedule, "annealing: instead of even steps, lambdas that grow to 1");
  command.option("base", wishes.base, "annealing: distribution to start from, as NAME:key=value (default normal)",
                 "NAME");
  command.option("flow,f", wishes.flow, "instead of annealing: a model file with a flow, with or without random layers",
                 "FILE");
  command.option("train_steps", wishes.train_steps,
                 "instead of annealing: train the flow snf for this many steps, to the target");
  command.option("train_batch", wishes.train_batch, "paths in a step of training");
  command.option("learning_rate", wishes.learning_rate, "of training, at its highest");
  command.option("layers", wishes.layers, "couplings of the flow that is trained");
  command.option("width", wishes.width, "units in each hidden layer of its conditioners");
  command.option("data", wishes.data, "training: HDF5 file with samples of the target, to learn from them too", "FILE");
  command.option("mixture", wishes.mixture, "training: the part of the data (default 0.5 with --data, else 0)", "X");
  command.option("save", wishes.save, "write the flow that was trained to this model file", "FILE");
  return command;
}

void check_wishes(const Command& command, const Wishes& wishes) {
  command.require("output", "-o samples.h5");
  check(wishes.count > 0, "-n: expected 1 or more, got ", wishes.count);
  check(wishes.batch_size > 0, "--batch-size: expected 1 or more, got ", wishes.batch_size);
  check(wishes.train_steps >= 0, "--train-steps: expected 0 or more, got ", wishes.train_steps);
  check(wishes.train_batch > 0, "--train-batch: expected 1 or more, got ", wishes.train_batch);
  const bool trains = wishes.train_steps > 0, loads = !wishes.flow.empty();
  check(!trains || !loads, "--flow and --train-steps exclude each other");
  for (const char* name : {"blocks", "schedule", "base"})
    check(!(trains || loads) || !command.given(name), "--", name, " belongs to annealing, not to a flow");
  for (const char* name : {"train_batch", "learning_rate", "layers", "width", "data", "mixture", "save"})
    check(trains || !command.given(name), "--", name, " belongs to training; say how long with --train-steps");
  check(!loads || !command.given("kernel"), "--kernel: the flow in ", wishes.flow, " has its own");
  check(!command.given("mixture") || (wishes.mixture >= 0 && wishes.mixture <= 1),
        "--mixture: expected a number from 0 to 1, got ", wishes.mixture);
  check(!command.given("mixture") || wishes.mixture == 0 || !wishes.data.empty(), "--mixture: needs --data");
  check(wishes.divide.empty() || wishes.divide.size() == 2, "--divide: expected FEATURE,VALUE, for example 0,0");
}

Json kernel_spec(const Wishes& wishes, const char* standard) {
  return within("--kernel", [&] { return spec_from_text(wishes.kernel.empty() ? standard : wishes.kernel); });
}

/// The flow of a model file. One that moves at densities of shared libraries is taken where the user named them.
FlowPtr loaded(const Wishes& wishes, const Json& target) {
  const auto model = read_model(wishes.flow);
  const auto named = libraries_in(target);
  auto libraries = Libraries::allowed;
  for (const auto& library : libraries_in(model.spec))
    if (std::find(named.begin(), named.end(), library) == named.end()) libraries = Libraries::refused;
  return flow_from(model, wishes.flow, libraries);
}

FlowPtr annealed(const Wishes& wishes, const TargetPtr& target) {
  const auto base = within("--base", [&] {
    auto spec = spec_from_text(wishes.base.empty() ? "normal" : wishes.base);
    if (!spec.contains("features")) spec["features"] = target->space().size();
    return build_distribution(spec);
  });
  return within("", [&] {
    return annealing_flow(
        target, base,
        {.kernel = kernel_spec(wishes, standard_kernel), .blocks = wishes.blocks, .schedule = wishes.schedule});
  });
}

FlowPtr trained(const Command& command, const Wishes& wishes, const TargetPtr& target, torch::Dtype dtype) {
  RecipeOptions options;
  options.features = target->space().size();
  options.layers = wishes.layers;
  options.width = wishes.width;
  options.density = target->spec().dump();
  options.kernel = wishes.kernel;
  const auto flow = build_flow(recipe("snf", options));
  flow->to(command.device(), dtype);
  Batch rows;
  rows.x = torch::zeros({wishes.train_batch, target->space().size()}, dtype);
  if (!wishes.data.empty()) {
    rows.x = read_table({wishes.data, object_in(wishes.data, "", {"/train/x", "/resampled", "/x"}), {}}, dtype).values;
    check(rows.x.size(1) == target->space().size(), wishes.data, ": has ", rows.x.size(1), " columns, the target has ",
          target->space().size());
  }
  const double mixture = wishes.mixture >= 0 ? wishes.mixture : wishes.data.empty() ? 0 : 0.5;
  PathKl objective(flow, target, {.mixture = mixture});
  FitHooks hooks;
  ProgressDisplay display("", false);
  hooks.progress = [&](const Progress& progress) { display.show(progress); };
  hooks.stop = interrupted;
  const auto report = fit(objective, *in_memory(rows), nullptr,
                          {.batch_size = wishes.train_batch,
                           .steps = wishes.train_steps,
                           .learning_rate = wishes.learning_rate,
                           .checkpoint_seconds = 1e9,
                           .seed = command.common().seed},
                          hooks);
  display.end();
  stop_if_interrupted();
  check(report.message.empty(), report.message);
  std::cout << "training   " << report.steps << " steps, loss " << number(report.train_loss) << " nats, "
            << duration(report.seconds) << std::endl;
  if (!wishes.save.empty()) save(*flow, wishes.save);
  return flow;
}

void print_estimate(const std::string& name, const Estimate& estimate) {
  std::cout << name << number(estimate.value, 6) << " +- " << number(estimate.error, 2) << " nats";
}

void print_kernels(const Flow& flow) {
  Columns table("lrrrr");
  table.row({"layer", "lambda", "steps", "step size", "accepted"});
  for (const auto& kernel : kernels_of(flow)) {
    const double accepted = kernel->acceptance();
    table.row({kernel->spec()["type"].get<std::string>(), number(kernel->density().lambda(), 3),
               std::to_string(kernel->kernel_options().steps), number(kernel->step_size(), 3),
               std::isnan(accepted) ? "all" : number(100 * accepted, 3) + " %"});
  }
  table.print();
}

/// Samples without weights, as many as the weighted ones are worth.
Tensor resampled(const Weighted& samples) {
  const double share = effective_sample_size(samples.log_weight);
  const auto count = std::max<int64_t>(1, std::llround(share * static_cast<double>(samples.log_weight.size(0))));
  const auto weight = (samples.log_weight.to(torch::kFloat64) - samples.log_weight.max().to(torch::kFloat64)).exp();
  // Not multinomial, which takes at most 2^24 weights.
  const auto sums = weight.cumsum(0);
  const auto rows =
      torch::searchsorted(sums, sums[-1] * torch::rand({count}, sums.options())).clamp_max(samples.x.size(0) - 1);
  return samples.x.index_select(0, rows);
}

void write_samples(const Command& command, const Wishes& wishes, const Weighted& samples, torch::Dtype dtype) {
  TableWriter writer(wishes.output);
  const auto columns = columns_for(samples.x.size(1));
  writer.begin("/x", columns, dtype);
  writer.append(samples.x);
  writer.attribute("/x", "target", wishes.target);
  writer.attribute("/x", "seed", std::to_string(command.common().seed));
  writer.begin("/log_weight", {{.name = "log_weight", .unit = "nats", .discrete = false}}, dtype, /*flat=*/true);
  writer.append(samples.log_weight);
  if (wishes.resample) {
    writer.begin("/resampled", columns, dtype);
    writer.append(resampled(samples));
  }
  writer.finish();
}

/// All samples, in pieces between which a signal is heeded; finite ones only.
Weighted draw_all(const Wishes& wishes, Flow& flow, LogDensity& target) {
  std::vector<Tensor> points, weights;
  for (int64_t begin = 0; begin < wishes.count; begin += wishes.batch_size) {
    stop_if_interrupted();
    const auto count = std::min(wishes.batch_size, wishes.count - begin);
    const auto part = draw_weighted(flow, target, count, count);
    points.push_back(part.x.cpu());
    weights.push_back(part.log_weight.cpu());
  }
  Weighted all{torch::cat(points), torch::cat(weights)};
  const auto broken = all.log_weight.isnan() | all.x.isfinite().all(1).logical_not();
  const auto count = broken.sum().item<int64_t>();
  if (count > 0) {
    warn("sample-target", c10::str(count, " samples are not finite and get no weight; smaller steps may help"));
    all.log_weight.masked_fill_(broken, -INFINITY);
  }
  return all;
}

int run(const Command& command, const Wishes& wishes) {
  check_wishes(command, wishes);
  check_writable(wishes.output);
  if (!wishes.save.empty()) check_writable(wishes.save);
  const auto spec = within("target", [&] { return spec_from_text(wishes.target); });
  const auto target = within("target", [&] { return build_target(spec); });
  const auto features = target->space().size();
  if (!wishes.divide.empty())
    check(wishes.divide[0] == std::floor(wishes.divide[0]) && wishes.divide[0] >= 0 &&
              wishes.divide[0] < static_cast<double>(features),
          "--divide: there is no feature ", wishes.divide[0], "; the target has 0 to ", features - 1);
  std::cout << "target     " << target->name() << ", " << features << (features == 1 ? " feature" : " features")
            << std::endl;

  const auto own = command.dtype(torch::kFloat64);
  const auto flow = wishes.train_steps > 0 ? trained(command, wishes, target, own)
                    : wishes.flow.empty()  ? annealed(wishes, target)
                                           : loaded(wishes, spec);
  const auto dtype =
      wishes.flow.empty() ? own : command.dtype(c10::typeMetaToScalarType(flow->tensor_options().dtype()));
  flow->to(command.device(), dtype);
  target->to(command.device(), dtype);
  if (wishes.train_steps == 0 && wishes.flow.empty()) {
    flow->train();  // step sizes that adapt do so on samples that are thrown away
    for (int i = 0; i < 20; ++i) flow->sample(500);
  }
  flow->eval();
  torch::manual_seed(command.common().seed);
  const auto samples = draw_all(wishes, *flow, *target);
  print_kernels(*flow);

  print_estimate("log Z      ", log_mean_weight(samples.log_weight));
  if (const auto exact = target->log_normalizer()) std::cout << " (exactly " << number(*exact, 6) << ")";
  const double share = effective_sample_size(samples.log_weight);
  std::cout << "\neffective  " << number(100 * share, 3) << " % of the samples, "
            << grouped(std::llround(share * static_cast<double>(wishes.count))) << " of " << grouped(wishes.count)
            << '\n';
  if (share * static_cast<double>(wishes.count) < fewest_to_trust)
    warn("sample-target",
         "the weights are worth so few samples that errors may be far too small; smaller steps, more "
         "steps or more blocks may help");
  if (!wishes.divide.empty()) {
    const auto below = samples.x.select(1, static_cast<int64_t>(wishes.divide[0])) < wishes.divide[1];
    print_estimate("F below - F above  ", free_energy_difference(samples.log_weight, below, below.logical_not()));
    std::cout << '\n';
  }
  write_samples(command, wishes, samples, dtype);
  std::cout << wishes.output << ":/x  " << grouped(wishes.count) << " samples x " << features
            << (features == 1 ? " column" : " columns") << ", /log_weight" << (wishes.resample ? ", /resampled" : "")
            << '\n';
  return fine;
}

}  // namespace

int sample_target(const Arguments& arguments) {
  Wishes wishes;
  auto command = arguments_of(wishes);
  if (!command.parse(arguments)) return fine;
  return run(command, wishes);
}

}  // namespace diffeo::apps
