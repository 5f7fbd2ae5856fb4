#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "diffeo/apps/command.h"
#include "diffeo/apps/fair.h"
#include "diffeo/apps/output.h"
#include "diffeo/apps/progress.h"
#include "diffeo/apps/signals.h"
#include "diffeo/apps/text.h"

namespace diffeo::apps {
namespace {

/// What the user asked for.
struct Wishes {
  std::string output, log, method = "flow", criterion = "demographic_parity";
  std::vector<double> gammas{0, 0.1, 0.5};
  bool resume = false, overwrite = false;
  int64_t restarts = 1, cell_steps = 2000;
  double ramp = 0.5;
  DataOptions data;
  ColumnScales::Options scales;
  Cells::Options cells;
  DensityOptions density;
  FairFlow::Options encoder;
  FitOptions fit;
};

constexpr int64_t standard_steps = 3000;
constexpr int64_t standard_evaluation = 200;

Command arguments_of(Wishes& wishes) {
  Command command(
      "fair train", "learn representations that hide a group and tell a label",
      "DATA.h5 --sensitive PATH --label PATH -o MODEL.h5 [options]",
      {"diffeo fair train law.h5 --sensitive /train/sensitive --label /train/label --gamma 0,0.1,0.5 -o fair.h5",
       "diffeo fair train adult.h5 --sensitive /train/sensitive --label /train/label --method matching "
       "--columns age,education_num,occupation -o fair.h5",
       "diffeo fair train law.h5 --sensitive male --label /train/label --criterion equalized_odds -o fair.h5"});
  command.argument("data", wishes.data.file, "HDF5 file with the rows to learn from");
  command.option("output,o", wishes.output, "model file to write", "FILE");
  command.option("sensitive", wishes.data.context, "object of the groups, numbered 0, 1, ..., or a column of x",
                 "PATH");
  command.option("gamma", wishes.gammas, "trade-offs, one model each: 0 for the label only, 1 for fairness only");
  command.option("method", wishes.method,
                 "flow (an encoder for each group) or matching (permutations of cells, for categorical columns)");
  command.option("criterion", wishes.criterion, "demographic_parity, equal_opportunity or equalized_odds");
  command.option("restarts", wishes.restarts, "beginnings for each gamma, of which the smallest objective is kept");
  command.option("ramp", wishes.ramp, "share of the steps in which the weight of fairness grows from 0");
  command.option("resume", wishes.resume, "go on after the last gamma that the model file holds");
  command.option("overwrite", wishes.overwrite, "replace a model file that holds an unfinished run");
  command.option("log", wishes.log, "write JSON lines about the run to this file", "FILE");
  command.options("data", wishes.data, {"file", "context", "weight"});
  command.options("scales (flow)", wishes.scales);
  command.options("densities of the groups (flow)", wishes.density);
  command.options("encoders and classifier (flow)", wishes.encoder, {"features", "groups", "mask_seed"});
  command.options(c10::str("training (flow; without any limit: ", standard_steps, " steps)"), wishes.fit,
                  {"seed", "graph", "memory"});
  command.options("cells (matching)", wishes.cells);
  command.option("cell_steps", wishes.cell_steps, "training steps of the model of each group's cells");
  return command;
}

void complete(const Command& command, Wishes& wishes) {
  command.require("output", "-o fair.h5");
  command.require("sensitive", "--sensitive /train/sensitive");
  command.require("label", "--label /train/label");
  check_choice("--method", wishes.method, {"flow", "matching"});
  within("--criterion", [&] { return labels_of(wishes.criterion); });
  check(wishes.method == "flow" || wishes.criterion == "demographic_parity",
        "--criterion: the matching is made for demographic_parity; --method flow knows the others");
  check(!wishes.gammas.empty(), "--gamma: give at least one");
  for (const double gamma : wishes.gammas) check(gamma >= 0 && gamma <= 1, "--gamma: must lie in [0, 1], got ", gamma);
  check(wishes.restarts >= 1, "--restarts: must be at least 1, got ", wishes.restarts);
  check(wishes.ramp >= 0 && wishes.ramp <= 1, "--ramp: must lie in [0, 1], got ", wishes.ramp);
  check(!wishes.resume || !wishes.overwrite, "--resume and --overwrite exclude each other");
  std::sort(wishes.gammas.begin(), wishes.gammas.end());
  auto& fit = wishes.fit;
  fit.seed = command.common().seed;
  if (fit.epochs == 0 && fit.steps == 0 && fit.seconds == 0) fit.steps = standard_steps;
  if (!command.given("evaluate_every")) fit.evaluate_every = standard_evaluation;
  if (!command.given("learning_rate")) fit.learning_rate = 3e-3;
}

/// The finished part of an earlier run, if there is one to go on with.
std::optional<FairModel> earlier_run(const Wishes& wishes, const Json& metadata) {
  if (!std::filesystem::exists(wishes.output) || !is_model_file(wishes.output)) return std::nullopt;
  if (!wishes.resume && wishes.overwrite) return std::nullopt;
  const auto file = read_model(wishes.output);
  if (!wishes.resume) {
    check(file.metadata.value("finished", true), wishes.output,
          ": holds an unfinished run; --resume goes on with it, --overwrite begins anew");
    return std::nullopt;
  }
  auto model = fair_model_from(file, wishes.output);
  for (const auto& [key, value] : metadata.items())
    check(key == "finished" || key == "program" || file.metadata.value(key, Json()) == value, wishes.output,
          ": --resume: this run was begun with another ", key,
          "; give the same arguments as then, or begin anew with --overwrite");
  return model;
}

void print_reports(const std::vector<DensityReport>& reports) {
  Columns table("rrrrrr");
  table.row({"group", "label", "rows", "training [nats]", "validation [nats]", "distance"});
  for (const auto& report : reports)
    table.row({std::to_string(report.group), report.label < 0 ? "all" : std::to_string(report.label),
               grouped(report.rows), number(report.train), number(report.valid), number(report.distance, 3)});
  std::cout << "densities of the groups: mean log-likelihood, and how far a classifier tells them from held-out rows\n";
  table.print();
}

/// Trains what is missing; false if it was interrupted.
bool fit_flows(const Wishes& wishes, const FairSplits& rows, torch::Device device, FairModel& model,
               const std::function<void()>& save) {
  const auto train = places_of(*model.scales, rows.train, device), valid = places_of(*model.scales, rows.valid, device);
  FairTraining training;
  training.model = wishes.encoder;
  training.fit = wishes.fit;
  training.restarts = wishes.restarts;
  training.model.features = model.scales->features();
  training.model.groups = model.groups;
  training.model.mask_seed = static_cast<int64_t>(wishes.fit.seed);
  const auto in_epoch = (train.size() + wishes.fit.batch_size - 1) / wishes.fit.batch_size;
  const auto by_epochs = wishes.fit.epochs * in_epoch;
  const auto steps = wishes.fit.steps > 0 && by_epochs > 0 ? std::min(wishes.fit.steps, by_epochs)
                                                           : std::max(wishes.fit.steps, by_epochs);
  check(
      steps > 0 || wishes.ramp == 0,
      "--ramp: is a share of the steps, which --seconds alone does not fix; give --steps or --epochs too, or --ramp 0");
  training.objective.ramp_end = std::llround(wishes.ramp * static_cast<double>(steps));
  ProgressDisplay display(wishes.log, !model.gammas.empty());
  FitHooks hooks;
  hooks.progress = [&](const Progress& progress) { display.show(progress); };
  hooks.notice = [](const std::string& sentence) { warn("fair train", sentence); };
  hooks.stop = [] { return interrupted(); };
  for (const double gamma : wishes.gammas) {
    if (std::find(model.gammas.begin(), model.gammas.end(), gamma) != model.gammas.end()) continue;
    training.objective.gamma = gamma;
    const auto fitted = fit_fair(train, valid, model.densities, training, model.scales, hooks, [&](int64_t restart) {
      display.note("begin", {{"gamma", gamma}, {"restart", restart}});
      std::cout << "gamma " << gamma;
      if (wishes.restarts > 1) std::cout << ", beginning " << restart + 1 << " of " << wishes.restarts;
      std::cout << std::endl;
    });
    display.end();
    if (interrupted()) return false;
    check(fitted.report.message.empty(), fitted.report.message);
    std::cout << "  objective " << number(fitted.objective) << " nats";
    if (fitted.objectives.size() > 1) {
      std::cout << ", the smallest of";
      for (const double value : fitted.objectives) std::cout << ' ' << number(value, 4);
    }
    std::cout << ", " << duration(fitted.report.seconds) << std::endl;
    display.note("end", {{"gamma", gamma}, {"objective", fitted.objective}});
    model.gammas.push_back(gamma);
    model.flows.push_back(fitted.model);
    save();
  }
  return true;
}

void print_rows(const Wishes& wishes, const FairSplits& rows, const Splits& splits, int64_t groups) {
  std::cout << "data      " << wishes.data.file << ": " << grouped(rows.train.size()) << " rows to train, "
            << grouped(rows.valid.size()) << " to validate, " << grouped(rows.test.size()) << " to test; "
            << splits.columns.size() << " columns\n";
  Columns table("rrr");
  table.row({"group", "rows", "label 1"});
  for (int64_t group = 0; group < groups; ++group) {
    const auto own = rows.train.of(group, -1);
    table.row({std::to_string(group), grouped(own.size()),
               number(100 * own.label.to(torch::kDouble).mean().item<double>(), 3) + " %"});
  }
  table.print();
}

int run(const Command& command, Wishes& wishes) {
  check_writable(wishes.output);
  const auto dtype = command.dtype(torch::kFloat32);
  const auto device = command.device();
  ModelFile file;
  file.metadata = {{"program", "diffeo " DIFFEO_VERSION},
                   {"data", write(wishes.data)},
                   {"method", wishes.method},
                   {"criterion", wishes.criterion},
                   {"density", write(wishes.density)},
                   {"encoder", write(wishes.encoder)},
                   {"fit", write(wishes.fit)},
                   {"restarts", wishes.restarts},
                   {"ramp", wishes.ramp},
                   {"scales", write(wishes.scales)},
                   {"finished", false}};
  auto earlier = earlier_run(wishes, file.metadata);
  const auto splits = load_splits(wishes.data, dtype);
  stop_if_interrupted();
  file.columns = splits.columns;
  FairModel model;
  FairSplits rows;
  const auto read_rows = [&](const DatasetPtr& data, const char* part) {
    return fair_rows(data.get(), wishes.criterion, model.groups, wishes.data.file + ": " + part + " rows");
  };
  model.method = wishes.method, model.criterion = wishes.criterion, model.groups = 0;
  rows.train = read_rows(splits.train, "training");
  model.groups = rows.train.group.max().item<int64_t>() + 1;
  rows.valid = read_rows(splits.valid, "validation");
  rows.test = read_rows(splits.test, "test");
  print_rows(wishes, rows, splits, model.groups);
  const auto save = [&] {
    put(model, file);
    write_model(wishes.output, file);
  };

  if (wishes.method == "matching") {
    check(model.groups == 2, wishes.data.file,
          ": the matching is made for two groups, but the sensitive attribute has ", model.groups);
    model.cells.emplace(rows.train.x, wishes.cells);
    std::cout << "cells     " << grouped(model.cells->count()) << " combinations of the values of "
              << model.cells->columns() << " columns" << std::endl;
    fit_matching(model, rows, wishes.cell_steps, wishes.fit.seed);
    model.gammas = wishes.gammas;
    print_reports(model.reports);
  } else {
    if (earlier) {
      model = std::move(*earlier);
      for (auto& stratum : model.densities)
        for (auto& density : stratum) density->to(device, dtype);
      std::cout << "resumed   after " << model.gammas.size() << " of " << wishes.gammas.size() << " gammas\n";
    } else {
      model.scales.emplace(rows.train.x, wishes.scales);
      for (const auto column : model.scales->left_out())
        warn("fair train", "column '" + splits.columns[column].name + "' is constant and left out");
      check(model.scales->features() >= 2, wishes.data.file, ": encoders need at least two columns, found ",
            model.scales->features());
      fit_densities(model, rows, wishes.density, wishes.fit.seed, device);
    }
    print_reports(model.reports);
    if (!fit_flows(wishes, rows, device, model, save)) {
      if (!model.flows.empty()) save();
      std::cerr << "diffeo fair train: interrupted; "
                << (model.flows.empty() ? "nothing is learned yet"
                                        : c10::str(wishes.output, " holds ", model.flows.size(),
                                                   " gammas; the same command with --resume goes on"))
                << std::endl;
      return interrupted_by_signal;
    }
  }
  file.metadata["finished"] = true;
  save();
  std::cout << "model     " << wishes.output << '\n';
  return fine;
}

}  // namespace

int fair_train(const Arguments& arguments) {
  Wishes wishes;
  auto command = arguments_of(wishes);
  if (!command.parse(arguments)) return fine;
  complete(command, wishes);
  return run(command, wishes);
}

}  // namespace diffeo::apps
