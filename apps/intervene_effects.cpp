#include <cmath>
#include <fstream>
#include <iostream>

#include "diffeo/apps/command.h"
#include "diffeo/apps/intervene.h"
#include "diffeo/apps/output.h"
#include "diffeo/apps/text.h"
#include "diffeo/trainers/interventional/effects.h"

namespace diffeo::apps {
namespace {

struct Wishes {
  std::string model, output, column;
  std::vector<int64_t> of, against;
  std::vector<double> quantiles{0.1, 0.25, 0.5, 0.75, 0.9};
  double threshold = 0, confidence = 0.95;
  int64_t bootstrap = 0;
  StudyOptions data;
};

/// The place of the treatment that an option names, or `otherwise`.
int64_t place_of(const InterventionalModel& model, const char* option, const std::vector<int64_t>& given,
                 int64_t otherwise) {
  check(given.size() <= 1, option, ": expected one value of the treatment, got ", given.size());
  if (given.empty()) return otherwise;
  return within(option, [&] { return model.place_of(given.front()); });
}

/// Where the rows lie: what the user says, else as in training.
StudyOptions data_of(const Command& command, const Wishes& wishes, const ModelFile& file) {
  const auto trained = read<StudyOptions>(file.metadata.at("study"));
  auto data = wishes.data;
  const auto fill = [&](const char* name, auto StudyOptions::*member) {
    if (!command.given(name)) data.*member = trained.*member;
  };
  fill("table", &StudyOptions::table);
  fill("covariates", &StudyOptions::covariates);
  fill("treatment", &StudyOptions::treatment);
  fill("outcome", &StudyOptions::outcome);
  fill("splits", &StudyOptions::splits);
  return data;
}

void write_csv(const std::string& path, const std::vector<Effect>& effects, double confidence) {
  std::ofstream stream(path);
  stream.precision(10);
  stream << "effect,densities,one_step,standard_error,lower,upper\n";
  for (const auto& effect : effects) {
    const auto [lower, upper] = effect.interval(confidence);
    stream << '"' << effect.name << "\"," << effect.density << ',' << effect.one_step << ',' << effect.standard_error
           << ',' << lower << ',' << upper << '\n';
  }
  check(static_cast<bool>(stream.flush()), path, ": cannot write");
}

int run(const Command& command, const Wishes& wishes) {
  if (!wishes.output.empty()) check_writable(wishes.output);
  check(wishes.confidence > 0 && wishes.confidence < 1, "--confidence: expected a number between 0 and 1, got ",
        wishes.confidence);
  check(wishes.bootstrap == 0 || wishes.bootstrap >= 2, "--bootstrap: expected at least 2 draws, or 0 for none, got ",
        wishes.bootstrap);
  const auto stored = read_intervention(wishes.model);
  auto& model = *stored.model;
  const auto dtype = c10::typeMetaToScalarType(model.tensor_options().dtype());
  model.to(command.device());
  const auto column = outcome_column(stored.file, wishes.column);
  const auto a = place_of(model, "--of", wishes.of, model.treatments() - 1);
  const auto b = place_of(model, "--against", wishes.against, 0);
  check(a != b, "--of and --against name the same treatment, ", model.options().treatments[a]);

  auto named = read_study(data_of(command, wishes, stored.file), dtype, model.options().treatments);
  check(named.study.covariates.size(1) == model.covariates(), wishes.data.file, ": has ",
        named.study.covariates.size(1), " covariates; the model takes ", model.covariates());
  check(named.study.outcome.size(1) == model.outcomes(), wishes.data.file, ": has ", named.study.outcome.size(1),
        " outcomes; the model has ", model.outcomes());
  auto& study = named.study;
  const bool known = model.knows(study);
  study = {study.covariates.to(command.device()), study.treatment.to(command.device()),
           study.outcome.to(command.device())};

  Effects effects(model, study, column);
  if (wishes.bootstrap > 0) effects.bootstrap(wishes.bootstrap, command.common().seed);
  std::vector<Effect> all{effects.average(a, b)};
  for (const auto level : wishes.quantiles) all.push_back(effects.quantile(level, a, b));
  all.push_back(effects.benefit_lower(wishes.threshold, a, b));
  all.push_back(effects.benefit_upper(wishes.threshold, a, b));

  std::cout << stored.file.columns[column].name << ": treatment " << model.options().treatments[a] << " against "
            << model.options().treatments[b] << ", " << grouped(study.rows()) << " rows"
            << (!known                      ? ", not those of training"
                : model.options().folds > 1 ? ", each judged by nuisances that did not see it"
                                            : ", those of training (no cross-fitting)")
            << "\nbenefit: P(difference > " << number(wishes.threshold)
            << "), which the data bound and do not decide\n";
  if (wishes.bootstrap > 0)
    std::cout << "errors and intervals from " << grouped(wishes.bootstrap)
              << " bootstrap draws of the rows, with the nuisances as they are\n";
  Columns table("lrrrr");
  table.row({"effect", "densities", "one-step", "std. error", c10::str(100 * wishes.confidence, " % interval")});
  for (const auto& effect : all) {
    const auto [lower, upper] = effect.interval(wishes.confidence);
    table.row({effect.name, number(effect.density), number(effect.one_step), number(effect.standard_error, 3),
               number(lower) + " to " + number(upper)});
  }
  table.print();
  if (wishes.output.empty()) return fine;
  write_csv(wishes.output, all, wishes.confidence);
  std::cout << wishes.output << '\n';
  return fine;
}

}  // namespace

int intervene_effects(const Arguments& arguments) {
  Wishes wishes;
  Command command(
      "intervene effects", "average effect, quantile effects and bounds of the probability of benefit",
      "MODEL.h5 DATA.h5 [--of A --against B] [-o EFFECTS.csv]",
      {"diffeo intervene effects model.h5 ihdp.h5",
       "diffeo intervene effects model.h5 ihdp.h5 --quantiles 0.05,0.5,0.95 --threshold 2 -o effects.csv",
       "diffeo intervene effects model.h5 ihdp.h5 --bootstrap 1000",
       "diffeo intervene effects model.h5 trial.h5 --of 2 --against 0 --confidence 0.9    # of several treatments"});
  command.argument("model", wishes.model, "model file of diffeo intervene train");
  command.argument("data", wishes.data.file, "HDF5 file with the rows that standard errors come from");
  command.option("of", wishes.of, "value of the treatment; default: the largest");
  command.option("against", wishes.against, "value to compare with; default: the smallest");
  command.option("column", wishes.column, "outcome, where there are several; default: the first");
  command.option("quantiles", wishes.quantiles, "levels of the quantile effects");
  command.option("threshold", wishes.threshold, "a difference above this is a benefit");
  command.option("confidence", wishes.confidence, "of the intervals");
  command.option("bootstrap", wishes.bootstrap,
                 "draws of a bootstrap of the rows that errors and intervals come from; 0: influence functions");
  command.option("output,o", wishes.output, "CSV file to write", "FILE");
  command.options("data (default: as in training)", wishes.data, {"file"});
  if (!command.parse(arguments)) return fine;
  return run(command, wishes);
}

}  // namespace diffeo::apps
