#include "diffeo/trainers/fair/fair_model.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/multinomial.h>

#include <algorithm>

#include "diffeo/layers/base/random.h"

namespace diffeo {
namespace {

constexpr int64_t rows_with_noise = 20000;  // up to so many, small tables are repeated with new noise
constexpr int64_t most_repeats = 8;
constexpr int64_t least_rows = 10;
constexpr int64_t cells_at_a_time = 16384;

std::string density_name(size_t stratum, size_t group) {
  return "density" + std::to_string(stratum) + ".group" + std::to_string(group);
}
std::string flow_name(size_t i) { return "gamma" + std::to_string(i); }

void put_state(const torch::nn::Module& module, const std::string& prefix, ModelFile& file) {
  for (const auto& [name, tensor] : named_state(module)) file.state.emplace_back(prefix + "." + name, tensor);
}

DistributionPtr density_from(const Json& spec) {
  if (spec.is_object() && spec.value("type", Json()) == "flow") return build_flow(spec);
  return build_distribution(spec);
}

template <class T>
T field(const Json& spec, const char* key) {
  if (!spec.contains(key)) throw SpecError(key, "is missing");
  try {
    return spec.at(key).get<T>();
  } catch (const Json::exception& error) {
    throw SpecError(key, error.what());
  }
}

/// Scales, densities and encoders as the spec has them, without their tensors.
void build_flows(const Json& spec, FairModel& model) {
  model.scales.emplace(field<Json>(spec, "scales"));
  const auto specs = field<std::vector<std::vector<Json>>>(spec, "densities");
  if (specs.size() != labels_of(model.criterion).size())
    throw SpecError("densities", "there are not as many as labels of the criterion");
  for (const auto& stratum : specs) {
    model.densities.emplace_back();
    if (static_cast<int64_t>(stratum.size()) != model.groups)
      throw SpecError("densities", c10::str("expected one for each of ", model.groups, " groups"));
    for (const auto& one : stratum) {
      const auto density = within("densities", [&] { return density_from(one); });
      if (density->space().size() != model.scales->features())
        throw SpecError("densities", c10::str("expected densities of ", model.scales->features(), " features"));
      model.densities.back().push_back(density);
    }
  }
  if (model.gammas.empty()) return;
  const auto flow_spec = field<Json>(spec, "flow");
  for (size_t i = 0; i < model.gammas.size(); ++i) {
    const auto flow = within("flow", [&] { return std::make_shared<FairFlow>(read<FairFlow::Options>(flow_spec)); });
    if (flow->features() != model.scales->features() || flow->groups() != model.groups)
      throw SpecError("flow", "features or groups are not those of scales and densities");
    model.flows.push_back(flow);
  }
}

void take_flows(StoredState& state, FairModel& model) {
  const auto take = [&](Module& module, const std::string& name) {
    state.take(module, name + ".");
    module.eval();
  };
  for (size_t stratum = 0; stratum < model.densities.size(); ++stratum)
    for (size_t group = 0; group < model.densities[stratum].size(); ++group)
      take(*model.densities[stratum][group], density_name(stratum, group));
  for (size_t i = 0; i < model.flows.size(); ++i) take(*model.flows[i], flow_name(i));
}

void take_matching(StoredState& state, const std::string& where, FairModel& model) {
  const auto count = model.cells->count();
  auto& matching = model.matching;
  matching.p0 = state.take("p0", {count}, at::kDouble), matching.p1 = state.take("p1", {count}, at::kDouble);
  for (const auto& [name, map] : {std::pair("keep", &matching.keep), std::pair("mix", &matching.mix)}) {
    *map = state.take(name, {count}, at::kLong);
    check(std::get<0>(map->sort()).equal(at::arange(count, at::kLong)), where, ":/state/", name,
          ": expected a permutation of ", count, " cells");
  }
}

}  // namespace

size_t FairModel::place_of(double gamma) const {
  for (size_t i = 0; i < gammas.size(); ++i)
    if (gammas[i] == gamma) return i;
  throw Error(c10::str("there is no model of gamma ", gamma, "; there are ", c10::Join(", ", gammas)));
}

std::vector<double> FairModel::density_errors() const {
  std::vector<double> errors;
  for (const auto label : labels_of(criterion)) {
    double sum = 0;
    for (const auto& report : reports)
      if (report.label == label) sum += report.distance;
    errors.push_back(sum / static_cast<double>(groups));
  }
  return errors;
}

FairRows fair_rows(const Dataset* data, const std::string& criterion, int64_t groups, const std::string& where) {
  FairRows rows;
  if (data == nullptr || data->rows() == 0) return rows;
  std::vector<Tensor> x, group, label;
  const auto stream = data->in_order(65536);
  for (Batch batch; stream->next(batch);) {
    check(batch.context.defined() && batch.context.size(1) == 1, where, ": expected one sensitive column, got ",
          batch.context.defined() ? batch.context.size(1) : 0);
    check(batch.label.defined() && batch.label.numel() == batch.x.size(0), where, ": expected one column of labels");
    x.push_back(batch.x), group.push_back(batch.context.select(1, 0)), label.push_back(batch.label.reshape({-1}));
  }
  rows = {at::cat(x), at::cat(group), at::cat(label)};
  const auto found = check_fair_rows(rows.group, rows.label, labels_of(criterion), where);
  check(groups == 0 || found == groups, where, ": expected ", groups, " groups as in training, found ", found);
  rows.group = rows.group.to(torch::kLong), rows.label = rows.label.to(torch::kLong);
  return rows;
}

FairRows points_of(const ColumnScales& scales, const FairRows& rows, torch::Device device) {
  if (rows.size() == 0) return rows;
  return {scales.points(scales.place(rows.x).to(device)), rows.group.to(device), rows.label.to(device)};
}

FairRows places_of(const ColumnScales& scales, const FairRows& rows, torch::Device device) {
  if (rows.size() == 0) return rows;
  return {scales.place(rows.x).to(device), rows.group.to(device), rows.label.to(device)};
}

FairRows cells_of(const Cells& cells, const FairRows& rows) {
  if (rows.size() == 0) return rows;
  return {cells.cell_of(rows.x), rows.group, rows.label};
}

void fit_densities(FairModel& model, const FairSplits& rows, const DensityOptions& options, uint64_t seed,
                   torch::Device device) {
  for (const auto label : labels_of(model.criterion))
    for (int64_t group = 0; group < model.groups; ++group) {
      const auto given = rows.train.of(group, label).size();
      check(given >= least_rows, "density of group ", group, label < 0 ? "" : c10::str(" and label ", label),
            ": needs at least ", least_rows, " training rows, got ", given,
            "; put small groups together, or leave them out");
    }
  const SeedGuard guard(seed);
  for (const auto label : labels_of(model.criterion)) {
    model.densities.emplace_back();
    for (int64_t group = 0; group < model.groups; ++group) {
      const auto points = [&](const FairRows& some) {
        const auto own = some.size() > 0 ? some.of(group, label) : rows.train.of(group, label);
        const auto times = std::clamp<int64_t>(rows_with_noise / own.size(), 1, most_repeats);
        const auto places = model.scales->place(own.x);
        std::vector<Tensor> each;
        for (int64_t i = 0; i < times; ++i) each.push_back(model.scales->points(places));
        return at::cat(each).to(device);
      };
      const auto train = points(rows.train), valid = points(rows.valid), held_out = points(rows.held_out());
      const auto density =
          within(c10::str("density of group ", group), [&] { return fit_density(train, valid, options, seed); });
      auto report = assess_density(*density, train, valid, held_out, seed);
      report.group = group, report.label = label, report.rows = rows.train.of(group, label).size();
      model.reports.push_back(report);
      model.densities.back().push_back(density);
    }
  }
}

void fit_matching(FairModel& model, const FairSplits& rows, int64_t steps, uint64_t seed) {
  check(model.groups == 2, "the matching is made for two groups, got ", model.groups);
  at_least(1, "cell_steps", steps);
  const auto& cells = *model.cells;
  const auto train = cells_of(cells, rows.train), valid = cells_of(cells, rows.valid),
             held_out = cells_of(cells, rows.held_out());
  std::vector<Tensor> p;
  for (int64_t group = 0; group < 2; ++group) {
    const auto own = train.of(group, -1).x, judges = (valid.size() > 0 ? valid : train).of(group, -1).x;
    p.push_back(fit_cell_probabilities(cells, own, judges, steps, seed));
    const auto likelihood = [&](const Tensor& some) {
      return p.back().index_select(0, some).log().mean().item<double>();
    };
    const auto draw = [&](int64_t count) { return cells.one_hot(at::multinomial(p.back(), count, true)); };
    model.reports.push_back({.label = -1,
                             .group = group,
                             .rows = own.size(0),
                             .train = likelihood(own),
                             .valid = likelihood(judges),
                             .distance = distance_to_draws(cells.one_hot(own), cells.one_hot(judges),
                                                           cells.one_hot(held_out.of(group, -1).x), draw, seed)});
  }
  // What the label of a cell would be: the groups' cells of one predicted label are matched with each other.
  const auto predictor = fit_classifier({cells.one_hot(train.x), train.label},
                                        {valid.size() > 0 ? cells.one_hot(valid.x) : Tensor(), valid.label}, 2, false,
                                        {.width = 50, .depth = 1, .steps = steps, .seed = seed});
  std::vector<Tensor> predicted;
  for (int64_t begin = 0; begin < cells.count(); begin += cells_at_a_time)
    predicted.push_back(predictor->predict(
        cells.one_hot(at::arange(begin, std::min(begin + cells_at_a_time, cells.count()), torch::kLong))));
  model.matching = CellMatching(p[0], p[1], at::cat(predicted));
}

void put(const FairModel& model, ModelFile& file) {
  file.state.clear();
  Json reports = Json::array();
  for (const auto& report : model.reports)
    reports.push_back({{"label", report.label},
                       {"group", report.group},
                       {"rows", report.rows},
                       {"train", report.train},
                       {"valid", report.valid},
                       {"distance", report.distance}});
  file.spec = {{"type", "fair"},         {"method", model.method}, {"criterion", model.criterion},
               {"groups", model.groups}, {"gammas", model.gammas}, {"reports", reports}};
  if (model.method == "matching") {
    file.spec["cells"] = model.cells->spec();
    const auto& matching = model.matching;
    file.state = {{"p0", matching.p0}, {"p1", matching.p1}, {"keep", matching.keep}, {"mix", matching.mix}};
    return;
  }
  file.spec["scales"] = model.scales->spec();
  Json densities = Json::array();
  for (size_t stratum = 0; stratum < model.densities.size(); ++stratum) {
    densities.push_back(Json::array());
    for (size_t group = 0; group < model.densities[stratum].size(); ++group) {
      densities.back().push_back(model.densities[stratum][group]->spec());
      put_state(*model.densities[stratum][group], density_name(stratum, group), file);
    }
  }
  file.spec["densities"] = densities;
  for (size_t i = 0; i < model.flows.size(); ++i) {
    file.spec["flow"] = write(model.flows[i]->options());
    put_state(*model.flows[i], flow_name(i), file);
  }
}

FairModel fair_model_from(const ModelFile& file, const std::string& where) {
  check(file.spec.is_object() && file.spec.value("type", Json()) == "fair", where,
        ": is no model of diffeo fair train (its spec is of type ",
        file.spec.is_object() ? file.spec.value("type", Json()).dump() : file.spec.dump(), ")");
  auto model = within(where + ":/spec", [&] {
    FairModel built;
    built.method = field<std::string>(file.spec, "method");
    check_choice("method", built.method, {"flow", "matching"});
    built.criterion = field<std::string>(file.spec, "criterion");
    labels_of(built.criterion);
    built.groups = field<int64_t>(file.spec, "groups");
    built.gammas = field<std::vector<double>>(file.spec, "gammas");
    for (const auto& report : field<std::vector<Json>>(file.spec, "reports"))
      built.reports.push_back({.label = field<int64_t>(report, "label"),
                               .group = field<int64_t>(report, "group"),
                               .rows = field<int64_t>(report, "rows"),
                               .train = field<double>(report, "train"),
                               .valid = field<double>(report, "valid"),
                               .distance = field<double>(report, "distance")});
    if (built.method == "matching")
      built.cells.emplace(field<Json>(file.spec, "cells"));
    else
      build_flows(file.spec, built);
    return built;
  });
  StoredState state(file, where);
  if (model.method == "matching")
    take_matching(state, where, model);
  else
    take_flows(state, model);
  state.expect_all_taken();
  return model;
}

}  // namespace diffeo
