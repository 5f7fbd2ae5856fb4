#include <ATen/Parallel.h>

#include <filesystem>
#include <fstream>
#include <iostream>

#include "diffeo/apps/command.h"
#include "diffeo/apps/dependence.h"
#include "diffeo/apps/images.h"
#include "diffeo/apps/output.h"
#include "diffeo/apps/progress.h"
#include "diffeo/apps/signals.h"
#include "diffeo/apps/text.h"
#include "diffeo/apps/train_target.h"
#include "diffeo/data/dequantize.h"
#include "diffeo/data/image_rows.h"
#include "diffeo/flows/image_recipes.h"
#include "diffeo/flows/likelihood.h"
#include "diffeo/flows/model.h"
#include "diffeo/flows/preprocess.h"
#include "diffeo/flows/recipes.h"
#include "diffeo/flows/whitened_latent.h"
#include "diffeo/layers/stochastic/kernel.h"
#include "diffeo/trainers/checkpoint.h"
#include "diffeo/trainers/noisy_data.h"

namespace diffeo::apps {
namespace {

/// What the user asked for.
struct Wishes {
  std::string flow, spec_file, objective = "maximum_likelihood", target, output, log, whiten = "never";
  bool resume = false, overwrite = false, preprocess_chosen = false;
  Json objective_spec;            ///< with its target
  bool draws_own_points = false;  ///< there are no data
  DataOptions data;
  RecipeOptions recipe;
  PreprocessOptions preprocess;
  DependenceOptions dependence;
  FitOptions fit;
};

const std::set<std::string> recipe_fields_we_set{"features", "context", "seed"};

Command arguments_of(Wishes& wishes) {
  Command command("train", "fit a flow to a table, or to a density", "[DATA.h5] --flow NAME -o MODEL.h5 [options]",
                  {"diffeo train moons.h5 --flow nsf -o model.h5",
                   "diffeo train events.h5 --x /events --columns pt,eta,phi --transform pt=log --flow nsf -o model.h5",
                   "diffeo train galaxies.h5 --columns u,g,r,i,z --context redshift --flow maf --epochs 50 -o model.h5",
                   "diffeo train moons.h5 --flow nsf -o model.h5 --resume          # goes on where it was stopped",
                   "diffeo train visits.h5 --flow nsf --groups /train/person --dependence learn -o model.h5",
                   "diffeo train moons.h5 --spec flow.json --config run.json -o model.h5 --log run.jsonl",
                   "diffeo train --target double_well:features=2 --objective reverse_kl --flow realnvp -o model.h5"});
  command.argument("data", wishes.data.file,
                   "HDF5 file with the rows to learn from; none for an objective that draws its own", false);
  command.option("output,o", wishes.output, "model file to write; it is a valid model from the first checkpoint on",
                 "FILE");
  command.option("flow,f", wishes.flow,
                 "a named flow: realnvp, nsf, maf, snf, injective, eiw, ... (diffeo inspect --recipes)", "NAME");
  command.option("spec", wishes.spec_file, "instead of --flow: JSON file with the spec of a flow", "FILE");
  command.option("objective", wishes.objective,
                 "what training minimises, with its options as NAME:key=value,key=value (diffeo inspect --objectives)",
                 "NAME");
  command.option("target", wishes.target,
                 "the density that an objective compares the flow with, as NAME or NAME:key=value,key=value "
                 "(diffeo inspect --targets)",
                 "NAME");
  command.option(
      "whiten", wishes.whiten,
      "set the last layer, a dense_linear, so that the latent training rows have mean 0 and covariance 1: before "
      "training (a start for score matching), after it (the maximum of the likelihood over that layer), both or never",
      "WHEN");
  command.option("resume", wishes.resume,
                 "go on with the run in the model file, to the same end as if it had never been stopped; "
                 "begins where there is no file yet");
  command.option("overwrite", wishes.overwrite, "replace a model file that holds an unfinished run");
  command.option("log", wishes.log, "write JSON lines about the run to this file", "FILE");
  command.options("data", wishes.data, {"file"});
  command.options("preprocessing (layers in front of the flow; likelihoods stay in the data's units)",
                  wishes.preprocess);
  command.options(
      "rows that depend on each other, as relatives do (in training; likelihoods are of new, unrelated rows)",
      wishes.dependence);
  command.options("the named flow (where it has no say: its own default)", wishes.recipe, recipe_fields_we_set);
  command.options("training (without any limit: 100 epochs, with patience 10)", wishes.fit, {"seed"});
  return command;
}

/// Whether training itself looks at rows as images, whatever the flow.
bool sees_images(const Wishes& wishes) { return wishes.preprocess.flip || learns_noise(wishes.preprocess); }

void complete(const Command& command, Wishes& wishes) {
  command.require("output", "-o model.h5");
  check(!wishes.flow.empty() || !wishes.spec_file.empty(),
        "which flow? say for example --flow nsf, or --spec flow.json");
  check(wishes.flow.empty() || wishes.spec_file.empty(), "--flow and --spec exclude each other");
  if (!wishes.spec_file.empty())
    for (const auto& field : describe<RecipeOptions>())
      check(recipe_fields_we_set.contains(field.name) || !command.given(field.name) ||
                (sees_images(wishes) && (field.name == "image" || field.name == "layout")),
            "--", field.name, " belongs to a named flow; with --spec it stands in the file");
  wishes.objective_spec = objective_spec(wishes.objective, wishes.target);
  const auto& objective = find_objective(wishes.objective_spec);
  wishes.draws_own_points = objective.draws_own_points;
  if (wishes.draws_own_points)
    check_no_data_options(command, objective.name, wishes.data.file);
  else
    check(
        !wishes.data.file.empty(),
        "data is missing (HDF5 file with the rows to learn from); usage: diffeo train DATA.h5 --flow NAME -o MODEL.h5");
  check(wishes.objective_spec.value("target", Json()).is_null() ||
            (!command.given("noise") && !command.given("dequantize")),
        "--noise and --dequantize: the objective ", objective.name,
        " compares points with the target's density there, which is not that of points with noise");
  check(!wishes.dependence.wanted() || !command.given("objective"),
        "--groups and --relatedness have an objective of their own; leave out --objective");
  check(!wishes.dependence.wanted() || !wishes.preprocess.flip,
        "--flip cannot be had with --groups or --relatedness: a mirrored row is no relative of its own");
  check_choice("--whiten", wishes.whiten, {"before", "after", "both", "never"});
  check(wishes.whiten == "never" || !wishes.draws_own_points, "--whiten needs rows of data; the objective ",
        objective.name, " draws its own");
  ask_for_dependence(wishes.dependence, wishes.data);
  check(!wishes.resume || !wishes.overwrite, "--resume and --overwrite exclude each other");
  auto& fit = wishes.fit;
  wishes.preprocess_chosen = command.given("preprocess");
  fit.seed = command.common().seed;
  wishes.recipe.seed = static_cast<int64_t>(command.common().seed);
  if (fit.epochs == 0 && fit.steps == 0 && fit.seconds == 0) fit.epochs = 100;
}

/// The model file of before, if there is one to go on with. Throws Error rather than lose an unfinished run.
std::optional<ModelFile> earlier_run(const Wishes& wishes) {
  if (!std::filesystem::exists(wishes.output)) return std::nullopt;
  if (wishes.resume) return read_model(wishes.output);
  if (wishes.overwrite || !is_model_file(wishes.output)) return std::nullopt;
  const auto earlier = read_model(wishes.output);
  check(earlier.metadata.value("finished", true), wishes.output,
        ": holds an unfinished run; --resume goes on with it, --overwrite begins anew");
  return std::nullopt;
}

bool of_images(const Wishes& wishes) {
  return std::any_of(all_recipes().begin(), all_recipes().end(),
                     [&](const Recipe& recipe) { return recipe.images && recipe.name == wishes.flow; });
}

/// How images lie in the rows, as the user or the file says; nothing where they are none. Throws Error if that is not
/// clear or does not fit the columns.
std::optional<ImageRows> images_of(const Wishes& wishes, const Splits& splits) {
  return images_of_rows(wishes.recipe.image, wishes.recipe.layout, wishes.data.file, splits.image_shape,
                        static_cast<int64_t>(splits.columns.size()));
}

/// The same for what is only noted: nothing where it is not clear.
std::optional<ImageRows> images_if_clear(const Wishes& wishes, const Splits& splits) {
  try {
    return images_of(wishes, splits);
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// The flow that the user asked for, before anything stands in front of it.
Json flow_of(const Wishes& wishes, const Splits& splits) {
  const auto columns = static_cast<int64_t>(splits.columns.size());
  const auto context = static_cast<int64_t>(splits.context_columns.size());
  if (wishes.spec_file.empty()) {
    auto options = wishes.recipe;
    options.features = columns;
    options.context = context;
    if (of_images(wishes)) {
      if (const auto images = images_of(wishes, splits)) options.image = images->shape, options.layout = images->layout;
    } else if (sees_images(wishes)) {  // said for the sake of flips and noise
      options.image.clear();
      options.layout.clear();
    }
    return within("--flow " + wishes.flow, [&] {
      const auto spec = recipe(wishes.flow, options);
      build_flow(spec);  // a mistake in an option shows here, with its place in this spec
      return spec;
    });
  }
  const auto spec = read_json(wishes.spec_file);
  const auto flow = within(wishes.spec_file, [&] { return build_flow(spec); });
  check(flow->space().size() == columns, wishes.spec_file, ": this flow is for ", flow->space().size(),
        " columns, but the data have ", columns);
  check(flow->context_size() == context, wishes.spec_file, ": this flow takes a context of ", flow->context_size(),
        " values, but the data give ", context, "; --context chooses columns for it");
  return spec;
}

/// The same with preprocessing.
Json spec_of(const Wishes& wishes, const Splits& splits) {
  auto spec = flow_of(wishes, splits);
  auto how = wishes.preprocess;
  if (!wishes.preprocess_chosen && of_images(wishes)) how.preprocess = "shared";
  // A flow on angles or on a box takes its columns as they are, unless the user says otherwise, and so does one with
  // Markov kernels: the densities that they move at are those of the columns.
  const auto flow = build_flow(spec);
  const auto& domain = flow->layers()->domain();
  const auto parts = flow->modules();
  const bool has_kernels = std::any_of(
      parts.begin(), parts.end(), [](const auto& part) { return std::dynamic_pointer_cast<Kernel>(part) != nullptr; });
  if (!wishes.preprocess_chosen && (!domain.same_as(Space::reals(domain.size())) || has_kernels))
    how.preprocess = "none";
  auto layers = preprocessing(how, splits.columns, *splits.train);
  if (learns_noise(how)) {
    const auto images = required(images_of(wishes, splits), "--dequantize variational: " + wishes.data.file);
    layers.insert(layers.begin(), image_dequantization(images));
  }
  for (const auto& layer : spec["layers"]) layers.push_back(layer);
  spec["layers"] = layers;
  // A spec that treats its contexts itself is left as it is.
  if (!spec.contains("context_layers")) {
    const auto of_context =
        context_preprocessing(how, static_cast<int64_t>(splits.context_columns.size()), *splits.train);
    if (!of_context.empty()) spec["context_layers"] = of_context;
  }
  return spec;
}

/// What the model file says about the run.
ModelFile description(const Wishes& wishes, const Splits& splits, const Json& spec, torch::Dtype dtype) {
  ModelFile model;
  model.spec = spec;
  model.columns = splits.columns;
  model.context_columns = splits.context_columns;
  Json noisy = Json::array();
  for (const auto column : dequantized_columns(wishes.preprocess, splits.columns))
    noisy.push_back(splits.columns[column].name);
  model.metadata = {{"program", "diffeo " DIFFEO_VERSION},
                    {"flow", wishes.spec_file.empty() ? wishes.flow : wishes.spec_file},
                    {"objective", wishes.objective_spec},
                    {"dtype", name_of(dtype)},
                    {"data", write(wishes.data)},
                    {"fit", write(wishes.fit)},
                    {"noise", wishes.preprocess.noise},
                    {"dequantized", noisy},
                    {"flip", wishes.preprocess.flip},
                    {"whiten", wishes.whiten},
                    {"finished", false}};
  if (const auto images = images_if_clear(wishes, splits)) model.metadata["image"] = write(*images);
  if (wishes.dependence.wanted()) {
    model.metadata["objective"] = "dependent_likelihood";
    model.metadata["dependence"] = write(wishes.dependence);
  }
  return model;
}

/// Warnings about the data, but not that a column should be dequantised, or is constant, if it is dequantised: noise
/// makes it vary.
void print_warnings(const Splits& splits, const std::vector<int64_t>& noisy, bool all_noisy) {
  constexpr int64_t most = 10;  // images have hundreds of columns, and all the same to say of them
  std::set<std::string> settled;
  const auto settle = [&](size_t i) {
    const auto column = "column '" + splits.columns[i].name + "' ";
    settled.insert({column + "holds whole numbers only", column + "is constant"});
  };
  for (const auto column : noisy) settle(static_cast<size_t>(column));
  for (size_t i = 0; i < splits.columns.size() && all_noisy; ++i) settle(i);
  int64_t printed = 0;
  for (const auto& warning : splits.warnings) {
    // The first of those that are not greater begins it, if any does.
    const auto after = settled.upper_bound(warning);
    if (after != settled.begin() && warning.starts_with(*std::prev(after))) continue;
    if (++printed <= most) warn("train", warning);
  }
  if (printed > most) warn("train", c10::str("and ", printed - most, " more such warnings"));
}

void check_same_run(const ModelFile& earlier, const ModelFile& now, const std::string& file) {
  const auto different = [&](const char* what) {
    throw Error(c10::str(file, ": --resume: this run was begun with ", what,
                         "; give the same arguments as then, or begin anew with --overwrite"));
  };
  if (earlier.columns != now.columns || earlier.context_columns != now.context_columns) different("other columns");
  // The file may have been moved meanwhile.
  auto data = earlier.metadata.value("data", Json::object());
  data["file"] = now.metadata["data"]["file"];
  if (data != now.metadata["data"]) different("other data options");
  if (earlier.metadata.value("dequantized", Json()) != now.metadata["dequantized"]) different("another --dequantize");
  if (earlier.metadata.value("objective", Json()) != now.metadata["objective"]) different("another --objective");
  if (earlier.metadata.value("dependence", Json()) != now.metadata.value("dependence", Json()))
    different("other dependent rows");
  if (earlier.metadata.value("noise", 0.0) != now.metadata["noise"].get<double>()) different("another --noise");
  if (earlier.metadata.value("flip", false) != now.metadata["flip"].get<bool>()) different("another --flip");
  if (earlier.metadata.value("whiten", std::string("never")) != now.metadata["whiten"].get<std::string>())
    different("another --whiten");
  if (earlier.metadata.value("dtype", Json()) != now.metadata["dtype"]) different("another --dtype");
  if (earlier.spec != now.spec) different("another flow, or other data");
}

/// The objective that the user asked for, on points with the noise asked for.
ObjectivePtr objective_of(const Wishes& wishes, const Splits& splits, const FlowPtr& flow,
                          const std::vector<int64_t>& noisy, ObjectivePtr objective) {
  if (!objective) objective = within("--objective", [&] { return build_objective(wishes.objective_spec, flow); });
  const double noise = wishes.preprocess.noise;
  if (noise == 0 && noisy.empty()) return objective;
  const auto unit = noise > 0 ? column_statistics(*splits.train).deviation : Tensor();
  return std::make_shared<NoisyData>(objective, *flow, NoisyData::Options{.noise = noise, .dequantize = noisy}, unit);
}

void print_summary(const Wishes& wishes, const Splits& splits, const Flow& flow) {
  const auto rows = [](const DatasetPtr& data) { return data ? grouped(data->rows()) : std::string("no"); };
  int64_t parameters = 0;
  for (const auto& parameter : flow.parameters()) parameters += parameter.numel();
  if (wishes.draws_own_points)
    std::cout << "target    " << wishes.objective_spec["target"]["type"].get<std::string>() << ": "
              << splits.columns.size() << " features; the flow draws " << rows(splits.train) << " points an epoch, "
              << rows(splits.valid) << " to validate\n";
  else
    std::cout << "data      " << wishes.data.file << ": " << rows(splits.train) << " rows to train, "
              << rows(splits.valid) << " to validate, " << rows(splits.test) << " to test; " << splits.columns.size()
              << " columns"
              << (splits.context_columns.empty() ? "" : c10::str(", ", splits.context_columns.size(), " of context"))
              << '\n';
  std::cout << "flow      " << (wishes.flow.empty() ? wishes.spec_file : wishes.flow) << ": "
            << flow.spec()["layers"].size() << " layers, " << grouped(parameters) << " parameters, "
            << name_of(c10::typeMetaToScalarType(flow.tensor_options().dtype())) << " on "
            << flow.tensor_options().device() << ", " << at::get_num_threads()
            << (at::get_num_threads() == 1 ? " thread\n" : " threads\n") << "training  " << wishes.fit.optimizer
            << ", batches of " << wishes.fit.batch_size << ", learning rate " << wishes.fit.learning_rate << " ("
            << wishes.fit.schedule << "), at most";
  if (wishes.fit.epochs > 0) std::cout << ' ' << wishes.fit.epochs << " epochs";
  if (wishes.fit.steps > 0) std::cout << ' ' << wishes.fit.steps << " steps";
  if (wishes.fit.seconds > 0) std::cout << ' ' << duration(wishes.fit.seconds);
  std::cout << std::endl;
}

constexpr int64_t paths_of_a_test = 20;  // from a row to the base, where layers are random

/// The same for a flow whose density lives on a manifold.
Json test_on_manifold(Flow& flow, BatchStream& rows) {
  ManifoldFit all;
  each_projection(flow, rows, [&](const Projection& projection, const Batch& batch) { all.add(projection, batch); });
  const auto& likelihoods = all.log_likelihoods();
  std::cout << "test log-likelihood on the manifold " << number(likelihoods.mean(), 6) << " +- "
            << number(likelihoods.standard_error(), 2) << " nats, squared distance to it "
            << number(all.reconstruction_error(), 4) << " (" << grouped(likelihoods.rows()) << " rows)\n";
  return {{"log_likelihood_on_manifold", likelihoods.mean()},
          {"standard_error", likelihoods.standard_error()},
          {"reconstruction_error", all.reconstruction_error()},
          {"rows", likelihoods.rows()}};
}

/// Prints and returns the log-likelihood of rows that had no part in training, or a lower bound of it.
Json test(Flow& flow, BatchStream& rows, int64_t features) {
  if (flow.injective()) return test_on_manifold(flow, rows);
  LogLikelihoods all;
  const bool random = flow.layers()->traits().random;
  each_log_prob(
      flow, rows, [&](const Tensor& log_prob, const Batch& batch) { all.add(log_prob, batch.weight); },
      random ? paths_of_a_test : 0);
  std::cout << (random ? "test log-likelihood at least " : "test log-likelihood ") << number(all.mean(), 6) << " +- "
            << number(all.standard_error(), 2) << " nats, " << number(all.bits_per_dimension(features))
            << " bits per dimension (" << grouped(all.rows()) << " rows)\n";
  return {{"log_likelihood", all.mean()}, {"standard_error", all.standard_error()}, {"rows", all.rows()}};
}

int run(const Command& command, Wishes& wishes) {
  check_writable(wishes.output);
  const auto earlier = earlier_run(wishes);
  const auto dtype = command.dtype(torch::kFloat32);
  auto splits = wishes.draws_own_points ? own_points(wishes.objective_spec, wishes.fit.batch_size)
                                        : load_splits(wishes.data, dtype);
  stop_if_interrupted();
  check(splits.train && splits.train->rows() > 0, wishes.data.file, ": no rows to train on");
  const auto noisy = dequantized_columns(wishes.preprocess, splits.columns);
  print_warnings(splits, noisy, learns_noise(wishes.preprocess));
  if (wishes.draws_own_points) wishes.preprocess.preprocess = "none";
  const bool may_end_early = splits.valid && !wishes.draws_own_points;
  if (wishes.fit.epochs == 100 && !command.given("epochs") && !command.given("patience") && may_end_early)
    wishes.fit.patience = 10;

  auto model = description(wishes, splits, spec_of(wishes, splits), dtype);
  if (wishes.preprocess.flip) {
    splits.train = flipped(splits.train, required(images_of(wishes, splits), "--flip: " + wishes.data.file));
  }
  at::manual_seed(command.common().seed);  // nothing that was read above may change the first weights
  auto flow = build_flow(model.spec);
  model.spec = flow->spec();
  flow->to(command.device(), dtype);
  if (wishes.whiten != "never") check_can_whiten(*flow);
  const auto whiten = [&] {
    whiten_latent(*flow, *dequantized(splits.train->in_order(1000), noisy, command.common().seed));
  };
  if (!earlier && (wishes.whiten == "before" || wishes.whiten == "both")) whiten();
  std::optional<TrainingState> state;
  if (earlier) {
    check_same_run(*earlier, model, wishes.output);
    state = training_in(*earlier, wishes.output);
  }
  const auto dependence = ready_dependence(wishes.dependence, wishes.data, splits, model.spec, flow->tensor_options(),
                                           wishes.fit, model.metadata, earlier ? earlier->metadata : Json::object());
  print_summary(wishes, splits, *flow);
  if (state) std::cout << "resumed   at step " << state->scalars.value("step", int64_t{0}) << std::endl;

  ProgressDisplay display(wishes.log, state.has_value());
  display.note("start", {{"rows", splits.train->rows()},
                         {"resumed", state.has_value()},
                         {"spec", model.spec},
                         {"fit", model.metadata["fit"]}});
  const auto dependent = dependence ? dependence->objective(flow) : nullptr;
  const auto objective = objective_of(wishes, splits, flow, noisy, dependent);
  FitHooks hooks;
  hooks.progress = [&](const Progress& progress) { display.show(progress); };
  hooks.notice = [](const std::string& sentence) { warn("train", sentence); };
  hooks.stop = [] { return interrupted(); };
  hooks.checkpoint = [&](const TrainingState& now, const Json& history) {
    put_training(model, now, history);
    write_model(wishes.output, model);
  };
  const auto report = fit(*objective, *splits.train, splits.valid.get(), wishes.fit, hooks, state ? &*state : nullptr);
  display.end();
  display.note("end", {{"ended", report.ended},
                       {"steps", report.steps},
                       {"seconds", report.seconds},
                       {"skipped_steps", report.skipped_steps}});
  if (report.ended == "interrupted") {
    std::cerr << "diffeo train: interrupted at step " << report.steps << "; " << wishes.output
              << " holds what is learned so far; the same command with --resume goes on" << std::endl;
    return interrupted_by_signal;
  }

  std::cout << "ended     by " << report.ended << " after " << report.steps << " steps, " << report.epochs
            << " epochs, " << duration(report.seconds) << '\n';
  if (dependent) {
    std::cout << "strength of the dependence " << number(dependent->strength(), 4) << '\n';
    model.metadata["dependence_strength"] = dependent->strength();
  }
  put_training(model, report.state, report.history);  // a resumed run goes on from the matrix as it was trained
  if (wishes.whiten == "after" || wishes.whiten == "both") whiten();
  if (splits.test && splits.test->rows() > 0) {
    auto rows = splits.test->in_order(4 * wishes.fit.batch_size);
    if (!noisy.empty()) rows = dequantized(std::move(rows), noisy, command.common().seed);
    model.metadata["test"] = test(*flow, *rows, flow->space().size());
    display.note("test", model.metadata["test"]);
  }
  if (!wishes.objective_spec.value("target", Json()).is_null()) {
    model.metadata["target"] = compare_with_target(*flow, wishes.objective_spec);
    display.note("target", model.metadata["target"]);
  }
  model.state = named_state(*flow);  // the best, an average, or the last
  model.metadata["finished"] = true;
  write_model(wishes.output, model);
  std::cout << "model     " << wishes.output << '\n';
  if (report.message.empty()) return fine;
  std::cerr << "diffeo train: " << report.message << std::endl;
  return failed;
}

}  // namespace

int train(const Arguments& arguments) {
  Wishes wishes;
  auto command = arguments_of(wishes);
  if (!command.parse(arguments)) return fine;
  complete(command, wishes);
  return run(command, wishes);
}

}  // namespace diffeo::apps
