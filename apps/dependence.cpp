#include "diffeo/apps/dependence.h"

#include <cmath>
#include <iostream>

#include "diffeo/apps/command.h"
#include "diffeo/apps/output.h"
#include "diffeo/apps/signals.h"
#include "diffeo/apps/text.h"
#include "diffeo/data/relatedness.h"
#include "diffeo/data/whole_groups.h"

namespace diffeo::apps {
namespace {

// Those of Kirchler et al.: 1 - lambda.
constexpr double grid[] = {0, 0.01, 0.025, 0.05, 0.1, 0.175, 0.25, 0.375, 0.5, 0.6, 0.67, 0.75, 0.9};

DependentLikelihood::Options strength_from(const std::string& text) {
  DependentLikelihood::Options how;
  if (text == "learn" || text == "turns") {
    how.learn = text == "learn" ? "joint" : "turns";
  } else if (text == "grid") {
    how.learn = "no";
  } else {
    check(text.starts_with("fixed="), "--dependence: expected fixed=STRENGTH, grid, learn or turns, got '", text, "'");
    const auto value = within("--dependence", [&] { return number_from(text.substr(6)); });
    how.learn = "no";
    how.strength = value.get<double>();
    check(how.strength >= 0 && how.strength <= RowDependence::most, "--dependence: the strength must be between 0 and ",
          RowDependence::most, ", got ", how.strength);
  }
  return how;
}

/// The full path of what lies beside x; a column of x, or anything else, keeps its name.
std::string full_path(const DataOptions& data, const std::string& name) {
  if (name.empty() || name.starts_with("/")) return name;
  const auto x = data.x.empty() ? std::string("/train/x") : data.x.starts_with("/") ? data.x : "/" + data.x;
  const auto neighbour = x.substr(0, x.rfind('/')) + "/" + name;
  bool beside = false;
  for (const auto& table : tables_in(data.file)) {
    beside |= table.object == neighbour;
    if (table.object != x) continue;
    for (const auto& column : table.columns)
      if (column.name == name) return name;
  }
  return beside ? neighbour : name;
}

/// Whether `/train/NAME` has no counterpart beside one of the other stored splits.
bool missing_elsewhere(const DataOptions& data, const std::string& path) {
  if (!path.starts_with("/train/")) return false;
  const auto tables = tables_in(data.file);
  const auto any = [&](auto&& fits) {
    return std::any_of(tables.begin(), tables.end(), [&](const TableInfo& table) { return fits(table.object); });
  };
  for (const std::string split : {"/valid/", "/validation/", "/val/", "/test/"})
    if (any([&](const std::string& object) { return object.starts_with(split); }) &&
        !any([&](const std::string& object) { return object == split + path.substr(7); }))
      return true;
  return false;
}

Batch in_memory_rows(const Dataset& data) {
  Batch rows;
  check(data.in_order(data.rows())->next(rows), "there are no rows to train on");
  return rows;
}

/// Labels of rows as integers. Throws Error for more than one column and for fractions.
Tensor integers(const Tensor& labels, const char* option) {
  const auto flat = labels.dim() == 2 && labels.size(1) == 1 ? labels.squeeze(1) : labels;
  check(flat.dim() == 1, option, ": expected one column, got values of shape ", labels.sizes());
  if (!flat.is_floating_point()) return flat.to(torch::kInt64);
  check((flat == flat.round()).all().item<bool>(), option, ": expected whole numbers");
  return flat.to(torch::kInt64);
}

/// Validation rows choose the best state, and the strength from a grid. Those of groups that train reward a flow for
/// knowing these groups.
void warn_of_known_groups(const Tensor& trained, const Dataset& valid) {
  const auto rows = in_memory_rows(valid);
  if (!rows.label.defined()) return;
  const auto known = torch::isin(integers(rows.label, "--groups"), trained).sum().item<int64_t>();
  if (known == 0) return;
  warn("train", c10::str(known, " of ", rows.x.size(0),
                         " validation rows are of groups that train too, and so favour too weak a dependence; store "
                         "validation rows of other groups, or train without any by --split 1,0,0"));
}

}  // namespace

void ask_for_dependence(const DependenceOptions& options, DataOptions& data) {
  if (!options.wanted()) {
    check(options.relatedness_rows.empty(), "--relatedness-rows belongs to --relatedness");
    check(options.dependence == "learn" && options.batches == "rows",
          "--dependence and --batches belong to --groups or --relatedness");
    return;
  }
  check(options.groups.empty() || options.relatedness.empty(), "--groups and --relatedness exclude each other");
  check(options.relatedness_rows.empty() || options.groups.empty(), "--relatedness-rows belongs to --relatedness");
  check(data.label.empty(), "--label has no place beside --groups or --relatedness, which label the rows themselves");
  check(data.weight.empty(), "--weight: rows that depend on each other have no weights");
  check_choice("--batches", options.batches, {"rows", "groups"});
  check(options.batches == "rows" || !options.groups.empty(), "--batches groups needs --groups");
  strength_from(options.dependence);
  const auto path = full_path(data, options.groups.empty() ? options.relatedness_rows : options.groups);
  if (!missing_elsewhere(data, path)) data.label = path;
}

Dependence::Dependence(const DependenceOptions& options, const DataOptions& data, Splits& splits)
    : options_(options), how_(strength_from(options.dependence)), to_search_(options.dependence == "grid") {
  check(!to_search_ || splits.valid, "--dependence grid: needs validation rows to choose the strength by");
  rows_ = in_memory_rows(*splits.train);
  const auto count = rows_.x.size(0);
  const auto name = full_path(data, options.groups.empty() ? options.relatedness_rows : options.groups);
  const auto* option = options.groups.empty() ? "--relatedness-rows" : "--groups";
  auto labels = rows_.label;
  if (!name.empty() && !labels.defined()) {
    labels = read_table({data.file, name, {}}, torch::kFloat64).values;
    check(labels.size(0) == count, option, ": ", data.file, ":", name, " has ", labels.size(0), " rows, but there are ",
          count, " training rows");
  }
  if (labels.defined()) labels = integers(labels, option);
  if (!options.groups.empty() && splits.valid) warn_of_known_groups(labels, *splits.valid);
  rows_.label = torch::arange(count);
  if (options.groups.empty())
    read_relatedness(labels.defined() ? labels : rows_.label, labels.defined());
  else
    read_groups(labels);
  splits.train = options.batches == "groups" ? in_whole_groups(rows_) : in_memory(rows_);
}

void Dependence::read_groups(const Tensor& labels) {
  const auto groups = std::make_shared<GroupedRows>(labels);
  check(groups->largest() > 1, "--groups: every row is a group of its own: nothing depends on anything");
  description_ = c10::str(groups->groups(), " groups of up to ", groups->largest(), " rows");
  if (options_.batches == "groups")
    rows_.label = labels;
  else
    structure_ = groups;
}

void Dependence::read_relatedness(const Tensor& places, bool given) {
  auto relatedness = within("--relatedness", [&] { return diffeo::read_relatedness(options_.relatedness); });
  const auto count = places.size(0);
  if (!given)
    check(relatedness.rows() == count, "--relatedness: ", options_.relatedness, " is of ", relatedness.rows(),
          " rows, but there are ", count, " training rows; --relatedness-rows says where each of them stands in it");
  const auto lowest = places.min().item<int64_t>(), highest = places.max().item<int64_t>();
  check(lowest >= 0 && highest < relatedness.rows(), "--relatedness-rows: holds ", lowest < 0 ? lowest : highest,
        ", but ", options_.relatedness, " is of ", relatedness.rows(), " rows, counted from 0");
  within("--relatedness " + options_.relatedness, [&] {
    if (relatedness.factor.defined())
      structure_ = RelatedRows::of_factor(relatedness.factor.index_select(0, places));
    else
      structure_ = RelatedRows::of_matrix(relatedness.matrix.index_select(0, places).index_select(1, places));
    return 0;
  });
  description_ = c10::str("related by ", options_.relatedness);
  if (relatedness.factor.defined()) description_ += c10::str(", a factor of rank ", relatedness.factor.size(1));
}

std::string Dependence::description() const {
  if (to_search_) return description_ + ", strength from a grid";
  if (how_.learn == "no") return c10::str(description_, ", strength ", how_.strength);
  return description_ + (how_.learn == "joint" ? ", strength learned with the flow" : ", strength learned in turns");
}

void Dependence::search(const Json& spec, const torch::TensorOptions& own, const Splits& splits, const FitOptions& fit,
                        const FitHooks& hooks, const std::function<void(double, double)>& told) {
  double best = 0, best_loss = INFINITY;
  FitHooks quiet;
  quiet.stop = hooks.stop;
  quiet.notice = hooks.notice;
  for (const double strength : grid) {
    how_.strength = strength;
    at::manual_seed(fit.seed);
    const auto flow = build_flow(spec);
    flow->to(own.device(), c10::typeMetaToScalarType(own.dtype()));
    const auto report = diffeo::fit(*objective(flow), *splits.train, splits.valid.get(), fit, quiet);
    if (report.ended == "interrupted") return;
    if (std::isfinite(report.best_valid_loss) && report.best_valid_loss < best_loss)
      best = strength, best_loss = report.best_valid_loss;
    told(strength, report.best_valid_loss);
  }
  check(std::isfinite(best_loss),
        "--dependence grid: no strength of the grid gave a finite validation loss; try a smaller --learning-rate");
  settle(best);
}

void Dependence::settle(double strength) {
  how_.strength = strength;
  to_search_ = false;
}

std::shared_ptr<DependentLikelihood> Dependence::objective(const FlowPtr& flow) const {
  auto everything = rows_;
  const auto device = flow->tensor_options().device();
  for (auto* tensor : {&everything.x, &everything.context, &everything.label})
    if (tensor->defined()) *tensor = tensor->to(device);
  return std::make_shared<DependentLikelihood>(flow, how_, structure_, everything);
}

std::optional<Dependence> ready_dependence(const DependenceOptions& options, const DataOptions& data, Splits& splits,
                                           const Json& spec, const torch::TensorOptions& own, const FitOptions& fit,
                                           Json& metadata, const Json& earlier) {
  if (!options.wanted()) return std::nullopt;
  Dependence dependence(options, data, splits);
  std::cout << "rows      " << dependence.description() << std::endl;
  if (!dependence.to_search()) return dependence;
  const auto noted = earlier.value("grid_strength", Json());
  if (noted.is_number()) {
    dependence.settle(noted.get<double>());
  } else {
    FitHooks hooks;
    hooks.stop = [] { return interrupted(); };
    hooks.notice = [](const std::string& sentence) { warn("train", sentence); };
    dependence.search(spec, own, splits, fit, hooks, [](double strength, double loss) {
      std::cout << "grid      strength " << number(strength, 3) << ": validation loss " << number(loss, 6) << std::endl;
    });
    stop_if_interrupted();
  }
  metadata["grid_strength"] = dependence.strength();
  std::cout << "grid      settles for " << number(dependence.strength(), 3) << std::endl;
  return dependence;
}

}  // namespace diffeo::apps
