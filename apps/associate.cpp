#include <cmath>
#include <fstream>
#include <iostream>

#include "diffeo/apps/associate_plot.h"
#include "diffeo/apps/command.h"
#include "diffeo/apps/output.h"
#include "diffeo/apps/signals.h"
#include "diffeo/apps/text.h"
#include "diffeo/data/durable_file.h"
#include "diffeo/data/genotypes.h"
#include "diffeo/data/relatedness.h"
#include "diffeo/flows/model.h"
#include "diffeo/trainers/genetics.h"
#include "diffeo/trainers/mixed_model.h"
#include "diffeo/trainers/phenotype_flow.h"

namespace diffeo::apps {
namespace {

struct Wishes {
  std::string file, genotypes = "x", phenotype, covariates, relatedness, relatedness_rows, transform = "none", model;
  std::string variances = "each", output, manhattan, qq, title;
  double dosage_scale = 0, rate = 0.05;
  MarkerFilter filter;
  PhenotypeFlowOptions flow;
};

/// Everything about the individuals that have a phenotype.
struct Study {
  Genotypes genotypes;  ///< of all individuals
  Tensor measured;      ///< (m), rows of the genotypes
  Tensor phenotype;     ///< (m)
  Tensor covariates;    ///< (m, C), undefined for none
  Tensor relatedness;   ///< (m, m)
  MarkerSummary markers;
  Tensor used;  ///< (M), columns of the genotypes

  Marker marker(int64_t i) const { return genotypes.markers[used[i].item<int64_t>()]; }
};

/// [FILE.h5:]OBJECT[:COLUMN] with the rows of all stored splits.
Table rows_named(const std::string& option, const Wishes& wishes, std::string text) {
  auto file = wishes.file;
  if (const auto colon = text.find(":/"); colon != std::string::npos && colon > 0) {
    file = text.substr(0, colon);
    text = text.substr(colon + 1);
  }
  std::vector<std::string> columns;
  if (const auto colon = text.find(':'); colon != std::string::npos) {
    columns.push_back(text.substr(colon + 1));
    text = text.substr(0, colon);
  }
  try {
    return read_all_rows(file, text, columns);
  } catch (const Error& error) {
    throw Error(c10::str("--", option, ": ", error.what()));
  }
}

void check_length(const std::string& option, const Tensor& values, int64_t individuals) {
  check(values.size(0) == individuals, "--", option, ": has ", values.size(0), " rows, but there are genotypes of ",
        individuals, " individuals");
}

void read_phenotype(const Wishes& wishes, Study& study) {
  const auto individuals = study.genotypes.dosages.size(0);
  const auto table = rows_named("phenotype", wishes, wishes.phenotype);
  check(table.values.size(1) == 1, "--phenotype: ", wishes.phenotype, " has ", table.values.size(1),
        " columns; choose one as ", wishes.phenotype, ":COLUMN");
  check_length("phenotype", table.values, individuals);
  auto there = torch::isfinite(table.values.squeeze(1));
  if (!wishes.covariates.empty()) {
    study.covariates = rows_named("covariates", wishes, wishes.covariates).values;
    check_length("covariates", study.covariates, individuals);
    const auto with_covariates = torch::isfinite(study.covariates).all(1);
    check(with_covariates.any().item<bool>(), "--covariates: ", wishes.covariates,
          " has a missing value for every individual");
    there = there.logical_and(with_covariates);
  }
  study.measured = there.nonzero().flatten();
  check(study.measured.numel() > 0, "--phenotype: ", wishes.phenotype, " is missing for every individual",
        study.covariates.defined() ? " that has the covariates" : "");
  study.phenotype = table.values.squeeze(1).index_select(0, study.measured);
  check(study.phenotype.min().item<double>() < study.phenotype.max().item<double>(), "--phenotype: ", wishes.phenotype,
        " is ", study.phenotype[0].item<double>(), " for every individual");
  if (study.covariates.defined()) study.covariates = study.covariates.index_select(0, study.measured);
}

/// The relatedness of all individuals.
Tensor relatedness_of(const Wishes& wishes, const Study& study) {
  const auto individuals = study.genotypes.dosages.size(0);
  if (wishes.relatedness.empty()) {
    std::cout << "relatedness  centred, from the genotypes at the markers tested" << std::endl;
    return centred_relatedness(without_missing(study.genotypes.dosages.index_select(1, study.used)));
  }
  const auto matrix = within("--relatedness", [&] { return read_relatedness(wishes.relatedness); }).dense();
  if (wishes.relatedness_rows.empty()) {
    check(matrix.size(0) == individuals, "--relatedness: ", wishes.relatedness, " is of ", matrix.size(0),
          " individuals, but there are genotypes of ", individuals,
          "; --relatedness-rows says where each of them stands in it");
    return matrix;
  }
  const auto table = rows_named("relatedness-rows", wishes, wishes.relatedness_rows);
  check(table.values.size(1) == 1, "--relatedness-rows: expected one column, got ", table.values.size(1));
  check_length("relatedness-rows", table.values, individuals);
  check(torch::isfinite(table.values).all().item<bool>() && table.values.min().item<double>() >= 0 &&
            table.values.max().item<double>() < static_cast<double>(matrix.size(0)) &&
            torch::equal(table.values, table.values.round()),
        "--relatedness-rows: expected whole numbers as places from 0 to ", matrix.size(0) - 1, ", as ",
        wishes.relatedness, " has ", matrix.size(0), " rows");
  const auto places = table.values.squeeze(1).to(torch::kInt64);
  return matrix.index_select(0, places).index_select(1, places);
}

Study read_study(const Wishes& wishes) {
  Study study;
  study.genotypes = read_genotypes(wishes.file, wishes.genotypes, wishes.dosage_scale);
  read_phenotype(wishes, study);
  const auto individuals = study.genotypes.dosages.size(0), count = study.genotypes.dosages.size(1);
  std::cout << "individuals  " << grouped(study.measured.numel()) << " of " << grouped(individuals)
            << " have the phenotype" << (study.covariates.defined() ? " and the covariates" : "") << '\n';
  study.markers = summary_of_markers(study.genotypes.dosages.index_select(0, study.measured), wishes.filter);
  study.used = study.markers.used.nonzero().flatten();
  check(study.used.numel() > 0, wishes.file, ": none of ", count, " markers has a frequency of ",
        wishes.filter.least_frequency, " or more and at most ", wishes.filter.most_missing, " missing calls");
  std::cout << "markers      " << grouped(study.used.numel()) << " of " << grouped(count) << " (frequency at least "
            << number(wishes.filter.least_frequency) << ", missing at most " << number(wishes.filter.most_missing)
            << ", not constant)" << std::endl;
  study.relatedness = relatedness_of(wishes, study).index_select(0, study.measured).index_select(1, study.measured);
  return study;
}

/// The phenotype on the scale that is tested.
Tensor on_scale(const Wishes& wishes, const Study& study, Json& notes) {
  if (wishes.transform == "none") return study.phenotype;
  if (wishes.transform == "rank") return rank_normal(study.phenotype);
  if (!wishes.model.empty()) {
    const auto flow = load_flow(wishes.model);
    notes["model"] = wishes.model;
    return within("--model " + wishes.model, [&] { return transformed(*flow, study.phenotype); });
  }
  auto options = wishes.flow;
  const auto made = fit_phenotype_flow(study.phenotype, RelatedRows::of_matrix(study.relatedness), options);
  std::cout << "flow         learned in " << options.steps << " steps, strength of the dependence "
            << number(made.strength, 3) << std::endl;
  notes["dependence_strength"] = made.strength;
  notes["flow"] = made.flow->spec();
  return transformed(*made.flow, study.phenotype);
}

struct Result {
  MixedModel::Null null;
  MixedModel::Associations found;
  Tensor frequency, missing;  ///< (M)
  double inflation = 1, level = 0;
};

void print(const Wishes& wishes, const Study& study, const Result& result) {
  const auto count = study.used.numel();
  const auto& p = result.found.wald;
  const double bonferroni = 0.05 / static_cast<double>(count);
  std::cout << "variance explained by relatedness  " << number(result.null.variance_explained, 5) << " +- "
            << number(result.null.standard_error, 4) << "   (lambda " << number(result.null.lambda_reml, 6)
            << " by REML)\n"
            << "inflation of the p-values          " << number(result.inflation, 4) << '\n'
            << "markers at a false discovery rate of " << number(100 * wishes.rate)
            << " %: " << grouped((p <= result.level).sum().item<int64_t>())
            << (result.level > 0 ? c10::str(" (p up to ", number(result.level, 3), ")") : "")
            << "; at 5 % by Bonferroni: " << grouped((p <= bonferroni).sum().item<int64_t>()) << "\n\n";
  Columns table("lrrrrrr");
  table.row({"strongest", "chromosome", "position", "frequency", "effect", "error", "p (Wald)"});
  const auto order = p.argsort();
  for (int64_t i = 0; i < std::min<int64_t>(10, count); ++i) {
    const auto at = order[i].item<int64_t>();
    const auto marker = study.marker(at);
    table.row({marker.name, marker.chromosome, std::to_string(marker.position),
               number(result.frequency[at].item<double>(), 3), number(result.found.effect[at].item<double>(), 4),
               number(result.found.standard_error[at].item<double>(), 4), number(p[at].item<double>(), 4)});
  }
  table.print();
}

const std::vector<std::string> names{"frequency",   "missing",   "effect", "standard_error",
                                     "lambda_reml", "lambda_ml", "p_wald", "p_likelihood_ratio",
                                     "p_score"};

Tensor columns_of(const Result& result) {
  const auto& f = result.found;
  return torch::stack({result.frequency, result.missing, f.effect, f.standard_error, f.lambda_reml, f.lambda_ml, f.wald,
                       f.likelihood_ratio, f.score},
                      1);
}

void write_csv(const std::string& path, const Study& study, const Result& result) {
  DurableFile file(path);
  {
    std::ofstream stream(file.temporary());
    stream << "marker,chromosome,position," << c10::Join(",", names) << '\n';
    const auto values = columns_of(result).contiguous();
    const auto* value = values.data_ptr<double>();
    char text[32];
    for (int64_t i = 0; i < values.size(0); ++i) {
      const auto marker = study.marker(i);
      stream << marker.name << ',' << marker.chromosome << ',' << marker.position;
      for (int64_t j = 0; j < values.size(1); ++j) {
        std::snprintf(text, sizeof text, ",%.9g", *value++);
        stream << text;
      }
      stream << '\n';
    }
    check(static_cast<bool>(stream.flush()), path, ": cannot write: is the disk full?");
  }
  file.commit();
}

/// Marker names are in the genotypes' file: here is which column each row is about.
void write_hdf5(const std::string& path, const Study& study, const Result& result, const Json& notes) {
  std::vector<std::string> chromosomes;
  std::vector<double> codes, positions;
  for (int64_t i = 0; i < study.used.numel(); ++i) {
    const auto marker = study.marker(i);
    auto found = std::find(chromosomes.begin(), chromosomes.end(), marker.chromosome);
    if (found == chromosomes.end()) found = chromosomes.insert(chromosomes.end(), marker.chromosome);
    codes.push_back(static_cast<double>(found - chromosomes.begin()));
    positions.push_back(static_cast<double>(marker.position));
  }
  std::vector<Column> columns;
  for (const auto& name : {"marker", "chromosome", "position"}) columns.push_back({name, "", true});
  for (const auto& name : names) columns.push_back({name, "", false});
  TableWriter writer(path);
  writer.begin("/association", columns, torch::kFloat64);
  writer.append(
      torch::cat({study.used.to(torch::kFloat64).unsqueeze(1), torch::tensor(codes, torch::kFloat64).unsqueeze(1),
                  torch::tensor(positions, torch::kFloat64).unsqueeze(1), columns_of(result)},
                 1));
  writer.attribute("/association", "chromosomes", Json(chromosomes).dump());
  writer.attribute("/association", "notes", notes.dump());
  writer.finish();
}

int run(const Wishes& wishes) {
  for (const auto* path : {&wishes.output, &wishes.manhattan, &wishes.qq})
    if (!path->empty()) check_writable(*path);
  const auto study = read_study(wishes);
  stop_if_interrupted();
  Json notes = {{"program", "diffeo " DIFFEO_VERSION},
                {"data", wishes.file},
                {"phenotype", wishes.phenotype},
                {"transform", wishes.transform},
                {"variances", wishes.variances}};
  const auto y = on_scale(wishes, study, notes);
  stop_if_interrupted();
  const MixedModel model(study.relatedness, study.covariates);
  Result result;
  result.null = model.null(y);
  const auto dosages =
      without_missing(study.genotypes.dosages.index_select(0, study.measured).index_select(1, study.used));
  result.found = model.associate(
      y, model.rotated(dosages),
      wishes.variances == "each" ? MixedModel::Strength::for_each_marker : MixedModel::Strength::of_the_null);
  stop_if_interrupted();
  result.frequency = study.markers.frequency.index_select(0, study.used);
  result.missing = study.markers.missing.index_select(0, study.used);
  result.inflation = inflation(result.found.wald);
  result.level = false_discovery_threshold(result.found.wald, wishes.rate);
  notes["variance_explained"] = result.null.variance_explained;
  notes["variance_explained_standard_error"] = result.null.standard_error;
  notes["inflation"] = result.inflation;
  print(wishes, study, result);

  const auto title = wishes.title.empty() ? c10::str(wishes.phenotype, ", transform ", wishes.transform) : wishes.title;
  if (!wishes.output.empty()) {
    if (wishes.output.ends_with(".csv"))
      write_csv(wishes.output, study, result);
    else
      write_hdf5(wishes.output, study, result, notes);
    std::cout << "\nwritten      " << wishes.output << '\n';
  }
  if (!wishes.manhattan.empty()) {
    std::vector<Marker> markers;
    for (int64_t i = 0; i < study.used.numel(); ++i) markers.push_back(study.marker(i));
    plot_manhattan(wishes.manhattan, markers, result.found.wald, result.level, title);
    std::cout << "picture      " << wishes.manhattan << '\n';
  }
  if (!wishes.qq.empty()) {
    plot_quantiles(wishes.qq, result.found.wald, result.inflation, title);
    std::cout << "picture      " << wishes.qq << '\n';
  }
  return fine;
}

}  // namespace

int associate(const Arguments& arguments) {
  Wishes wishes;
  Command command(
      "associate", "association of genetic markers with a phenotype by a linear mixed model",
      "GENOTYPES.h5 --phenotype OBJECT[:COLUMN] [options]",
      {"diffeo associate mice.h5 --phenotype outcome:0 --manhattan manhattan.png --qq qq.png",
       "diffeo associate mice.h5 --phenotype outcome:0 --transform flow -o results.csv",
       "diffeo associate mice.h5 --phenotype traits.h5:/y --relatedness mice.h5:/kinship "
       "--relatedness-rows index -o results.h5",
       "diffeo associate mice.h5 --phenotype outcome:2 --transform flow --model model.h5 --covariates sex"});
  command.argument("genotypes_file", wishes.file, "HDF5 file with the genotypes");
  command.option("phenotype,p", wishes.phenotype,
                 "[FILE.h5:]OBJECT[:COLUMN], one value for each individual; those without one are left out", "TEXT");
  command.option(
      "covariates", wishes.covariates,
      "[FILE.h5:]OBJECT[:COLUMN]; the intercept is always there, individuals with a missing value are left out",
      "TEXT");
  command.option("transform", wishes.transform,
                 "of the phenotype: none, rank (rank-based inverse normal) or flow (learned with related rows)");
  command.option("model", wishes.model, "for --transform flow: a flow of one column, trained by diffeo train", "FILE");
  command.option("output,o", wishes.output, "results for each marker: .csv, or HDF5 (/association)", "FILE");
  command.option("manhattan", wishes.manhattan, "picture of the p-values along the genome: .png, .svg or .pdf", "FILE");
  command.option("qq", wishes.qq, "picture of the p-values against those expected of nothing", "FILE");
  command.option("title", wishes.title, "of the pictures");
  command.option("rate", wishes.rate, "false discovery rate");
  command.option("variances", wishes.variances,
                 "each: variances anew for each marker, exact; null: those without a marker for all, faster");
  command.option("genotypes", wishes.genotypes,
                 "object of the dosages (individuals x markers), with those of other stored splits", "PATH");
  command.option("dosage_scale", wishes.dosage_scale, "what stands for one copy; 0: attribute dosage_scale, else 1");
  command.option("frequency", wishes.filter.least_frequency, "least frequency of the rarer allele");
  command.option("missing", wishes.filter.most_missing, "largest share of missing calls");
  command.option("relatedness", wishes.relatedness, "FILE.h5:/OBJECT; default: centred, from the markers tested");
  command.option("relatedness_rows", wishes.relatedness_rows,
                 "[FILE.h5:]OBJECT with each individual's place in it; default: their order");
  command.options("the flow of the phenotype (without --model)", wishes.flow, {"seed"});
  if (!command.parse(arguments)) return fine;
  command.require("phenotype", "--phenotype outcome:0");
  check_choice("--transform", wishes.transform, {"none", "rank", "flow"});
  check_choice("--variances", wishes.variances, {"each", "null"});
  check(wishes.model.empty() || wishes.transform == "flow", "--model belongs to --transform flow");
  check(wishes.filter.least_frequency >= 0 && wishes.filter.least_frequency <= 0.5,
        "--frequency: must be between 0 and 0.5, got ", wishes.filter.least_frequency);
  check(wishes.filter.most_missing >= 0 && wishes.filter.most_missing <= 1, "--missing: must be between 0 and 1, got ",
        wishes.filter.most_missing);
  check(wishes.rate > 0 && wishes.rate < 1, "--rate: must be between 0 and 1, got ", wishes.rate);
  wishes.flow.seed = command.common().seed;
  return run(wishes);
}

}  // namespace diffeo::apps
