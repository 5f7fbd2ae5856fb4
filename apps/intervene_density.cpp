#include <cmath>
#include <iostream>

#include "diffeo/apps/command.h"
#include "diffeo/apps/gnuplot.h"
#include "diffeo/apps/intervene.h"
#include "diffeo/apps/output.h"
#include "diffeo/apps/plot.h"
#include "diffeo/apps/text.h"
#include "diffeo/trainers/interventional/effects.h"

namespace diffeo::apps {
namespace {

constexpr int64_t values_for_summary = 1 << 15;
constexpr int64_t most_points = 4'000'000;

struct Wishes {
  std::string model, grid, output, plot, title;
  std::vector<int64_t> treatments;
};

/// One axis of the points at which densities are asked for.
struct Range {
  double lower = 0, upper = 1;
  int64_t count = 400;
  Tensor points() const { return torch::linspace(lower, upper, count, torch::kFloat64); }
  double step() const { return (upper - lower) / static_cast<double>(count - 1); }
};

Range range_from(const std::string& text) {
  const auto parts = split(text, ':');
  check(parts.size() == 3, "--grid: expected lower:upper:count for each outcome, got '", text, "'");
  Range range;
  within("--grid", [&] {
    range.lower = number_from(parts[0]).get<double>();
    range.upper = number_from(parts[1]).get<double>();
    range.count = integer_from(parts[2], false).get<int64_t>();
  });
  check(range.lower < range.upper && range.count >= 2,
        "--grid: expected lower below upper and at least 2 points, got '", text, "'");
  return range;
}

/// What --grid asks for; without it, where the densities are.
std::vector<Range> ranges_of(const Wishes& wishes, const std::vector<Tensor>& values) {
  const auto outcomes = values[0].size(1);
  if (!wishes.grid.empty()) {
    const auto parts = split(wishes.grid, ',');
    check(static_cast<int64_t>(parts.size()) == outcomes, "--grid: the model has ", outcomes,
          " outcomes; expected lower:upper:count for each, separated by commas, got ", parts.size());
    std::vector<Range> ranges;
    for (const auto& part : parts) ranges.push_back(range_from(part));
    return ranges;
  }
  check(outcomes <= 2, "--grid: is needed for ", outcomes, " outcomes");
  std::vector<Range> ranges;
  for (int64_t d = 0; d < outcomes; ++d) {
    Range range{INFINITY, -INFINITY, outcomes == 1 ? 400 : 120};
    for (const auto& all : values) {
      const auto sorted = std::get<0>(all.select(1, d).sort());
      const auto n = sorted.numel();
      const double lower = sorted[n / 1000].item<double>(), upper = sorted[n - 1 - n / 1000].item<double>();
      range.lower = std::fmin(range.lower, lower - 0.08 * (upper - lower));
      range.upper = std::fmax(range.upper, upper + 0.08 * (upper - lower));
    }
    ranges.push_back(range);
  }
  return ranges;
}

/// (M, D), the last axis fastest.
Tensor product(const std::vector<Range>& ranges) {
  std::vector<Tensor> axes;
  int64_t points = 1;
  for (const auto& range : ranges) {
    axes.push_back(range.points());
    check(range.count <= most_points / points, "--grid: has more than ", grouped(most_points), " points");
    points *= range.count;
  }
  std::vector<Tensor> columns;
  for (auto& grid : torch::meshgrid(axes, "ij")) columns.push_back(grid.flatten());
  return torch::stack(columns, 1);
}

Tensor density_on(Flow& flow, const Tensor& points) {
  std::vector<Tensor> parts;
  for (const auto& part : points.split(1 << 16))
    parts.push_back(flow.log_prob(part.to(flow.tensor_options())).exp().to(torch::kCPU, torch::kFloat64));
  return torch::cat(parts);
}

std::string label(const Column& column) {
  return column.unit.empty() ? column.name : column.name + " [" + column.unit + "]";
}

void draw(const Wishes& wishes, const StoredIntervention& stored, const std::vector<int64_t>& places,
          const std::vector<Range>& ranges, const Tensor& points, const std::vector<Tensor>& densities) {
  const auto& treatments = stored.model->options().treatments;
  const auto name = [&](size_t i) {
    return "do(" + stored.file.metadata.value("treatment", std::string("treatment")) + " = " +
           std::to_string(treatments[places[i]]) + ")";
  };
  const auto panels = ranges.size() == 1 ? 1 : static_cast<int>(places.size());
  Gnuplot picture(wishes.plot, ranges.size() == 1 ? 900 : 520 * panels, 520);
  picture << "set border 3 lc rgb '#444444'; set tics nomirror";
  if (ranges.size() == 1) {
    if (!wishes.title.empty()) picture << "set title " + quoted(wishes.title);
    picture << "set xlabel " + quoted(label(stored.file.columns[0])) + "; set ylabel 'density'; set yrange [0:*]"
            << c10::str("set xrange [", ranges[0].lower, ":", ranges[0].upper, "]; set key top right");
    std::string command;
    for (size_t i = 0; i < places.size(); ++i) {
      const auto table = torch::stack({points.select(1, 0), densities[i]}, 1);
      command += (i == 0 ? "plot " : ", ") + picture.data(table) + " using 1:2" +
                 filled(colours[i % std::size(colours)]) + " title " + quoted(name(i));
    }
    picture << command;
  } else {
    double top = 0;
    for (const auto& density : densities) top = std::fmax(top, density.max().item<double>());
    picture << c10::str("set multiplot layout 1,", panels) << "unset key"
            << "set xlabel " + quoted(label(stored.file.columns[0])) + "; set ylabel " +
                   quoted(label(stored.file.columns[1]))
            << c10::str("set xrange [", ranges[0].lower, ":", ranges[0].upper, "]; set yrange [", ranges[1].lower, ":",
                        ranges[1].upper, "]; set cbrange [0:", top, "]")
            << "set palette defined (0 '#ffffff', 1 '#9ecae1', 2 '#3182bd', 3 '#08306b')";
    for (size_t i = 0; i < places.size(); ++i)
      picture << "set title " + quoted(name(i))
              << "plot " + picture.data(torch::cat({points, densities[i].unsqueeze(1)}, 1)) + " using 1:2:3 with image";
    picture << "unset multiplot";
  }
  picture.draw();
}

void summarise(const StoredIntervention& stored, const std::vector<int64_t>& places,
               const std::vector<Tensor>& values) {
  Columns table("lrrrrrrrr");
  table.row({"outcome", "do", "mean", "deviation", "5 %", "25 %", "50 %", "75 %", "95 %"});
  for (size_t d = 0; d < stored.file.columns.size(); ++d)
    for (size_t i = 0; i < places.size(); ++i) {
      const auto column = values[i].select(1, static_cast<int64_t>(d));
      const auto sorted = std::get<0>(column.sort());
      const auto at = [&](double level) {
        return number(sorted[static_cast<int64_t>(level * static_cast<double>(sorted.numel()))].item<double>());
      };
      table.row({stored.file.columns[d].name, std::to_string(stored.model->options().treatments[places[i]]),
                 number(column.mean().item<double>()), number(column.std().item<double>()), at(0.05), at(0.25), at(0.5),
                 at(0.75), at(0.95)});
    }
  table.print();
}

int run(const Command& command, const Wishes& wishes) {
  for (const auto* file : {&wishes.output, &wishes.plot})
    if (!file->empty()) check_writable(*file);
  const auto stored = read_intervention(wishes.model);
  stored.model->to(command.device(), command.dtype(c10::typeMetaToScalarType(stored.model->tensor_options().dtype())));
  const auto places = places_of(*stored.model, wishes.treatments);
  check(wishes.plot.empty() || stored.model->outcomes() <= 2, "--plot: draws one or two outcomes; the model has ",
        stored.model->outcomes());
  torch::NoGradGuard no_grad;
  std::vector<Tensor> values, densities;
  for (const auto place : places)
    values.push_back(
        outcome_values(*stored.model->targets()[place], values_for_summary).to(torch::kCPU, torch::kFloat64));
  const auto ranges = ranges_of(wishes, values);
  const auto points = product(ranges);
  double volume = 1;
  for (const auto& range : ranges) volume *= range.step();
  for (const auto place : places) {
    densities.push_back(density_on(*stored.model->targets()[place], points));
    const double mass = densities.back().sum().item<double>() * volume;
    if (mass < 0.99)
      warn("intervene", c10::str("the grid holds ", number(100 * mass, 3), " % of the density under treatment ",
                                 stored.model->options().treatments[place]));
  }
  summarise(stored, places, values);
  if (!wishes.output.empty()) {
    auto columns = stored.file.columns;
    for (const auto place : places)
      columns.push_back(
          {.name = c10::str("density_do_", stored.model->options().treatments[place]), .unit = "", .discrete = false});
    auto table = points;
    for (const auto& density : densities) table = torch::cat({table, density.unsqueeze(1)}, 1);
    TableWriter writer(wishes.output);
    writer.begin("/x", columns, torch::kFloat64);
    writer.append(table);
    writer.attribute("/x", "model", wishes.model);
    writer.finish();
    std::cout << wishes.output << ":/x  " << grouped(points.size(0)) << " points\n";
  }
  if (!wishes.plot.empty()) {
    draw(wishes, stored, places, ranges, points, densities);
    std::cout << wishes.plot << '\n';
  }
  return fine;
}

}  // namespace

int intervene_density(const Arguments& arguments) {
  Wishes wishes;
  Command command("intervene density", "the density of the outcome under each treatment",
                  "MODEL.h5 [--do A,B] [--grid LOWER:UPPER:COUNT] [-o DENSITIES.h5] [--plot PICTURE.png]",
                  {"diffeo intervene density model.h5 --plot densities.png",
                   "diffeo intervene density model.h5 --do 1 --grid -5:15:400 -o densities.h5",
                   "diffeo intervene density model.h5 --grid -3:3:100,-3:3:100 -o densities.h5   # two outcomes"});
  command.argument("model", wishes.model, "model file of diffeo intervene train");
  command.option("do", wishes.treatments, "values of the treatment; default: all");
  command.option("grid", wishes.grid, "points of each outcome; default: where the densities are", "L:U:N");
  command.option("output,o", wishes.output, "HDF5 file to write: /x with the points and a density for each treatment",
                 "FILE");
  command.option("plot", wishes.plot, "a picture of the densities; .png, .svg or .pdf", "FILE");
  command.option("title", wishes.title, "title of the picture");
  if (!command.parse(arguments)) return fine;
  return run(command, wishes);
}

}  // namespace diffeo::apps
