#include <ATen/Parallel.h>

#include <cmath>
#include <filesystem>
#include <iostream>

#include "diffeo/apps/command.h"
#include "diffeo/apps/intervene.h"
#include "diffeo/apps/output.h"
#include "diffeo/apps/progress.h"
#include "diffeo/apps/signals.h"
#include "diffeo/apps/text.h"
#include "diffeo/trainers/interventional/effects.h"
#include "diffeo/trainers/interventional/train.h"

namespace diffeo::apps {
namespace {

struct TrainingOptions {
  int64_t folds = 5;
  std::string correction = "aiptw";
  int64_t target_bins = 8;
  double target_bound = 0, smoothing = 1, floor = 0.02;
  bool batches = false;
  int64_t nuisance_steps = 2000, nuisance_batch_size = 64, target_steps = 2000, target_batch_size = 512;
  double nuisance_learning_rate = 2e-3, target_learning_rate = 5e-3, average = 0.995, holdout = 0.1;
  double checkpoint_seconds = 60;
  static constexpr auto fields() {
    using O = TrainingOptions;
    return std::tuple{
        optional("folds", &O::folds, "nuisances, each learned without one fold of the rows; 1: no cross-fitting"),
        optional("correction", &O::correction,
                 "aiptw (right where outcome densities or propensities are), plug_in (where the former are) or iptw "
                 "(where the latter are)"),
        optional("batches", &O::batches,
                 "fit the density of one outcome in batches of the published loss, which need not have a minimum, "
                 "rather than to the corrected distribution made increasing"),
        optional("smoothing", &O::smoothing,
                 "width of the kernel on single outcomes in that distribution, in units of Silverman's rule"),
        optional("floor", &O::floor,
                 "in batches (and for several outcomes): part of a broad density that bounds the loss; 0: none"),
        optional("target_bins", &O::target_bins, "bins of the interventional densities' splines"),
        optional("target_bound", &O::target_bound,
                 "they act within this many standard deviations; 0: all that was observed"),
        optional("nuisance_steps", &O::nuisance_steps, "training steps of each nuisance"),
        optional("nuisance_batch_size", &O::nuisance_batch_size, "rows in one of them"),
        optional("nuisance_learning_rate", &O::nuisance_learning_rate, "at its highest; a cosine takes it to 0"),
        optional("holdout", &O::holdout, "share of a nuisance's rows that choose its best state; 0: the last one"),
        optional("target_steps", &O::target_steps, "training steps of the interventional densities"),
        optional("target_batch_size", &O::target_batch_size, "rows in one of them"),
        optional("target_learning_rate", &O::target_learning_rate, "at its highest; a cosine takes it to 0"),
        optional("average", &O::average, "decay of the moving average of their weights"),
        optional("checkpoint_seconds", &O::checkpoint_seconds, "seconds between checkpoints")};
  }
};

struct Wishes {
  std::string output, log;
  bool resume = false;
  std::vector<int64_t> treatments;
  StudyOptions data;
  TrainingOptions training;
  NuisanceOptions nuisance;
  NuisanceLikelihood::Options regularisation;
  QuadratureOptions quadrature;
};

Command arguments_of(Wishes& wishes) {
  Command command(
      "intervene train", "learn the density of the outcome under each treatment",
      "DATA.h5 --covariates WHERE --treatment WHERE --outcome WHERE -o MODEL.h5 [options]",
      {"diffeo intervene train ihdp.h5 --covariates /train/x --treatment /train/treatment --outcome /train/outcome:0 "
       "-o model.h5",
       "diffeo intervene train trial.h5 --covariates age,sex,weight --treatment dose --outcome pressure -o model.h5",
       "diffeo intervene train trial.h5 --covariates age,sex,weight --treatment dose --outcome pressure -o model.h5 "
       "--resume"});
  command.argument("data", wishes.data.file, "HDF5 file with the rows of the study");
  command.option("output,o", wishes.output, "model file to write: nuisances and interventional densities", "FILE");
  command.option("treatments", wishes.treatments, "values that the treatment may take; default: those it takes");
  command.option("resume", wishes.resume,
                 "go on with the run in the model file, to the same end as if it had never been stopped");
  command.option("log", wishes.log, "write JSON lines about the run to this file", "FILE");
  command.options("data", wishes.data, {"file"});
  command.options("training", wishes.training);
  command.options("nuisances: outcome densities given covariates and treatment, and propensities", wishes.nuisance);
  command.options("their regularisation", wishes.regularisation);
  command.options("integrals and clipping", wishes.quadrature);
  return command;
}

InterventionalFit fit_of(const Wishes& wishes, uint64_t seed) {
  const auto& t = wishes.training;
  InterventionalFit fit;
  fit.regularisation = wishes.regularisation;
  fit.holdout = t.holdout;
  fit.nuisance = {.batch_size = t.nuisance_batch_size,
                  .steps = t.nuisance_steps,
                  .learning_rate = t.nuisance_learning_rate,
                  .checkpoint_seconds = t.checkpoint_seconds,
                  .seed = seed};
  fit.target = {.batch_size = t.target_batch_size,
                .steps = t.target_steps,
                .learning_rate = t.target_learning_rate,
                .average = t.average,
                .checkpoint_seconds = t.checkpoint_seconds,
                .seed = seed};
  return fit;
}

InterventionalOptions structure_of(const Wishes& wishes) {
  InterventionalOptions options;
  options.folds = wishes.training.folds;
  options.correction = wishes.training.correction;
  options.increasing = !wishes.training.batches;
  options.floor = wishes.training.floor;
  options.smoothing = wishes.training.smoothing;
  options.target_bins = wishes.training.target_bins;
  options.target_bound = wishes.training.target_bound;
  options.nuisance = wishes.nuisance;
  options.quadrature = wishes.quadrature;
  return options;
}

void put_position(ModelFile& file, const InterventionalModel& model, const InterventionalPosition& position) {
  file.state = named_state(model);
  file.training = {{"stage", position.stage}, {"run", position.state.scalars}};
  file.training_state = position.state.tensors;
}

InterventionalPosition position_in(const ModelFile& file, const std::string& where) {
  check(file.training.is_object() && file.training.contains("stage"), where, ": --resume: holds no run to go on with");
  return {file.training["stage"].get<int64_t>(), {file.training["run"], file.training_state}};
}

/// The run of before, if there is one to go on with.
std::optional<ModelFile> earlier_run(const Wishes& wishes, const ModelFile& now) {
  if (!wishes.resume || !std::filesystem::exists(wishes.output)) return std::nullopt;
  auto earlier = read_model(wishes.output);
  const bool same = earlier.spec == now.spec && earlier.columns == now.columns &&
                    earlier.context_columns == now.context_columns &&
                    earlier.metadata.value("training", Json()) == now.metadata["training"] &&
                    earlier.metadata.value("seed", Json()) == now.metadata["seed"] &&
                    earlier.metadata.value("dtype", Json()) == now.metadata["dtype"];
  check(same, wishes.output, ": --resume: this run was begun with other data or options");
  check(!earlier.metadata.value("finished", false), wishes.output, ": --resume: this run has finished");
  return earlier;
}

ModelFile description(const Wishes& wishes, const NamedStudy& named, const InterventionalModel& model,
                      const Command& command, torch::Dtype dtype) {
  ModelFile file;
  file.spec = model.spec();
  file.columns = named.outcome_columns;
  file.context_columns = named.covariate_columns;
  auto training = write(wishes.training);
  training.update(write(wishes.regularisation));
  file.metadata = {{"program", "diffeo " DIFFEO_VERSION},
                   {"treatment", named.treatment_name},
                   {"study", write(wishes.data)},
                   {"training", training},
                   {"seed", command.common().seed},
                   {"dtype", name_of(dtype)},
                   {"finished", false}};
  return file;
}

/// What the rows allow to be said, before anything is learned from them.
void print_study(const Wishes& wishes, const NamedStudy& named) {
  std::cout << "data      " << wishes.data.file << ": " << grouped(named.study.rows()) << " rows, "
            << named.covariate_columns.size() << " covariates, outcome";
  for (const auto& column : named.outcome_columns) std::cout << ' ' << column.name;
  std::cout << "\ntreatment " << named.treatment_name << ':';
  for (size_t a = 0; a < named.treatments.size(); ++a)
    std::cout << (a > 0 ? ", " : " ") << named.treatments[a] << " ("
              << grouped(named.study.treatment.eq(static_cast<int64_t>(a)).sum().item<int64_t>()) << " rows)";
  std::cout << std::endl;
}

/// Tells of overlap and means, and returns it for the model file.
Json print_result(InterventionalModel& model, const NamedStudy& named) {
  const auto clip = model.options().quadrature.clip;
  const auto predictions = model.predict(named.study);
  const auto& propensity = predictions.propensity;
  const auto trimmed = trimmed_share(propensity, named.study.treatment, clip);
  Json overlap = Json::array();
  Columns table("rrrrrr");
  table.row({"treatment", "rows", "propensity", "trimmed", "mean", "one-step mean"});
  const Effects effects(model.targets(), predictions, named.study, clip);
  for (int64_t a = 0; a < model.treatments(); ++a) {
    const auto given = propensity.index({named.study.treatment.eq(a), a});
    const double least = given.min().item<double>(), most = given.max().item<double>(),
                 share = trimmed[a].item<double>();
    const auto mean = effects.mean(a);
    table.row({std::to_string(named.treatments[a]), grouped(given.numel()), number(least, 2) + " - " + number(most, 2),
               number(100 * share, 3) + " %", number(mean.density),
               number(mean.one_step) + " +- " + number(mean.standard_error, 2)});
    overlap.push_back({{"treatment", named.treatments[a]},
                       {"rows", given.numel()},
                       {"least_propensity", least},
                       {"trimmed_share", share}});
    if (share > 0.05)
      warn("intervene", c10::str("treatment ", named.treatments[a], ": ", number(100 * share, 3),
                                 " % of its rows have a propensity below ", clip,
                                 " and get no weight: the groups overlap little, and the correction is partial"));
  }
  table.print();
  return overlap;
}

int run(const Command& command, Wishes& wishes) {
  command.require("output", "-o model.h5");
  check_writable(wishes.output);
  const auto dtype = command.dtype(torch::kFloat32);
  auto named = read_study(wishes.data, dtype, wishes.treatments);
  stop_if_interrupted();
  at::manual_seed(command.common().seed);
  auto model =
      InterventionalModel::for_study(named.study, named.treatments, structure_of(wishes), command.common().seed);
  auto file = description(wishes, named, *model, command, dtype);
  const auto earlier = earlier_run(wishes, file);
  std::optional<InterventionalPosition> position;
  if (earlier) {
    position = position_in(*earlier, wishes.output);
    model = interventional_from(*earlier, wishes.output);
  }
  model->to(command.device(), dtype);
  named.study.covariates = named.study.covariates.to(command.device());
  named.study.treatment = named.study.treatment.to(command.device());
  named.study.outcome = named.study.outcome.to(command.device());
  print_study(wishes, named);

  std::optional<ProgressDisplay> display;
  display.emplace(wishes.log, position.has_value());
  InterventionalHooks hooks;
  hooks.begin = [&](int64_t stage, const std::string& what) {
    display->end();
    std::cout << what << std::endl;
    display->note("stage", {{"stage", stage}, {"what", what}});
  };
  hooks.progress = [&](const Progress& progress) {
    // A line for each of hundreds of short epochs helps nobody.
    auto shown = progress;
    shown.evaluated = progress.evaluated && (progress.step == progress.total_steps || progress.step % 500 == 0);
    display->show(shown);
  };
  hooks.notice = [](const std::string& sentence) { warn("intervene", sentence); };
  hooks.stop = [] { return interrupted(); };
  hooks.checkpoint = [&](const InterventionalPosition& now, const Json& history) {
    put_position(file, *model, now);
    file.history = history;
    write_model(wishes.output, file);
  };
  const auto report = fit_interventional(*model, named.study, fit_of(wishes, command.common().seed), hooks,
                                         position ? &*position : nullptr);
  display->end();
  if (report.ended == "interrupted") {
    std::cerr << "diffeo intervene: interrupted; " << wishes.output
              << " holds what is learned so far; the same command with --resume goes on" << std::endl;
    return interrupted_by_signal;
  }
  if (!report.message.empty()) {
    std::cerr << "diffeo intervene: " << report.message << std::endl;
    return failed;
  }
  file.metadata["overlap"] = print_result(*model, named);
  file.metadata["finished"] = true;
  file.state = named_state(*model);
  file.history = report.history;
  file.training = nullptr;
  file.training_state.clear();
  write_model(wishes.output, file);
  std::cout << "model     " << wishes.output << '\n';
  return fine;
}

}  // namespace

int intervene_train(const Arguments& arguments) {
  Wishes wishes;
  auto command = arguments_of(wishes);
  if (!command.parse(arguments)) return fine;
  return run(command, wishes);
}

}  // namespace diffeo::apps
