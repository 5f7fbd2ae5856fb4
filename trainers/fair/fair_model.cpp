#include "diffeo/trainers/fair/fair_model.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/multinomial.h>

#include <algorithm>
#include <map>

#include "diffeo/layers/base/random.h"

namespace diffeo {
namespace {

constexpr int64_t rows_with_noise = 20000;  // up to so many, small tables are repeated with new noise
constexpr int64_t most_repeats = 8;
constexpr int64_t cells_at_a_time = 16384;

using State = std::map<std::string, Tensor>;

std::string density_name(size_t stratum, size_t group) {
  return "density" + std::to_string(stratum) + ".group" + std::to_string(group);
}
std::string flow_name(size_t i) { return "gamma" + std::to_string(i); }

void put_state(const torch::nn::Module& module, const std::string& prefix, ModelFile& file) {
  for (const auto& [name, tensor] : named_state(module)) file.state.emplace_back(prefix + "." + name, tensor);
}

const Tensor& tensor_in(const State& state, const std::string& name, const std::string& where) {
  const auto found = state.find(name);
  check(found != state.end(), where, ":/state/", name, ": is missing");
  return found->second;
}

/// Copies the tensors of a file into a module, in their dtype.
void take_state(torch::nn::Module& module, const std::string& prefix, const State& state, const std::string& where) {
  const at::NoGradGuard no_grad;
  const auto own = named_state(module);
  for (const auto& [name, tensor] : own)
    if (tensor.is_floating_point()) {
      module.to(tensor_in(state, prefix + "." + name, where).scalar_type());
      break;
    }
  for (const auto& [name, tensor] : named_state(module)) {
    const auto& value = tensor_in(state, prefix + "." + name, where);
    check(value.sizes() == tensor.sizes() && value.scalar_type() == tensor.scalar_type(), where, ":/state/", prefix,
          ".", name, ": expected ", tensor.scalar_type(), " ", tensor.sizes(), ", found ", value.scalar_type(), " ",
          value.sizes());
    Tensor(tensor).copy_(value);
  }
  module.eval();
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

void take_flows(const Json& spec, const State& state, const std::string& where, FairModel& model) {
  model.scales.emplace(field<Json>(spec, "scales"));
  const auto specs = field<std::vector<std::vector<Json>>>(spec, "densities");
  if (specs.size() != labels_of(model.criterion).size())
    throw SpecError("densities", "there are not as many as labels of the criterion");
  for (size_t stratum = 0; stratum < specs.size(); ++stratum) {
    model.densities.emplace_back();
    if (static_cast<int64_t>(specs[stratum].size()) != model.groups)
      throw SpecError("densities", c10::str("expected one for each of ", model.groups, " groups"));
    for (size_t group = 0; group < specs[stratum].size(); ++group) {
      const auto density = within("densities", [&] { return density_from(specs[stratum][group]); });
      if (density->space().size() != model.scales->features())
        throw SpecError("densities", c10::str("expected densities of ", model.scales->features(), " features"));
      take_state(*density, density_name(stratum, group), state, where);
      model.densities.back().push_back(density);
    }
  }
  const auto flow_spec = field<Json>(spec, "flow");
  for (size_t i = 0; i < model.gammas.size(); ++i) {
    const auto flow = within("flow", [&] { return std::make_shared<FairFlow>(read<FairFlow::Options>(flow_spec)); });
    if (flow->features() != model.scales->features() || flow->groups() != model.groups)
      throw SpecError("flow", "features or groups are not those of scales and densities");
    take_state(*flow, flow_name(i), state, where);
    model.flows.push_back(flow);
  }
}

void take_matching(const Json& spec, const State& state, const std::string& where, FairModel& model) {
  model.cells.emplace(field<Json>(spec, "cells"));
  const auto count = model.cells->count();
  auto& matching = model.matching;
  matching.p0 = tensor_in(state, "p0", where), matching.p1 = tensor_in(state, "p1", where);
  matching.keep = tensor_in(state, "keep", where), matching.mix = tensor_in(state, "mix", where);
  for (const auto& p : {matching.p0, matching.p1})
    check(p.dim() == 1 && p.size(0) == count && p.scalar_type() == at::kDouble, where, ":/state: expected ", count,
          " probabilities in float64, found ", p.scalar_type(), " ", p.sizes());
  for (const auto& map : {matching.keep, matching.mix})
    check(map.dim() == 1 && map.size(0) == count && map.scalar_type() == at::kLong && map.min().item<int64_t>() >= 0 &&
              map.max().item<int64_t>() < count,
          where, ":/state: expected a permutation of ", count, " cells");
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
  const State state(file.state.begin(), file.state.end());
  return within(where + ":/spec", [&] {
    FairModel model;
    model.method = field<std::string>(file.spec, "method");
    check_choice("method", model.method, {"flow", "matching"});
    model.criterion = field<std::string>(file.spec, "criterion");
    labels_of(model.criterion);
    model.groups = field<int64_t>(file.spec, "groups");
    model.gammas = field<std::vector<double>>(file.spec, "gammas");
    for (const auto& report : field<std::vector<Json>>(file.spec, "reports"))
      model.reports.push_back({.label = field<int64_t>(report, "label"),
                               .group = field<int64_t>(report, "group"),
                               .rows = field<int64_t>(report, "rows"),
                               .train = field<double>(report, "train"),
                               .valid = field<double>(report, "valid"),
                               .distance = field<double>(report, "distance")});
    if (model.method == "matching")
      take_matching(file.spec, state, where, model);
    else
      take_flows(file.spec, state, where, model);
    return model;
  });
}

}  // namespace diffeo
