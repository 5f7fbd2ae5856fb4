#include <cmath>

#include "diffeo/apps/gnuplot.h"
#include "diffeo/apps/plot.h"
#include "diffeo/flows/model.h"

namespace diffeo::apps {
namespace {

/// Where to draw: the ends of a bounded axis, else what samples reach, with a margin.
Bins window(const Axis& axis, const Tensor& samples, int64_t count) {
  const auto sorted = std::get<0>(samples.sort());
  const auto n = sorted.numel();
  double lower = sorted[n / 500].item<double>(), upper = sorted[n - 1 - n / 500].item<double>();
  const double margin = 0.12 * (upper - lower);
  lower = std::isfinite(axis.lower) ? axis.lower : lower - margin;
  upper = std::isfinite(axis.upper) ? axis.upper : upper + margin;
  return {lower, (upper - lower) / static_cast<double>(count), count};
}

std::string label(const std::vector<Column>& columns, size_t i) {
  if (i >= columns.size()) return c10::str("x", i);
  return columns[i].unit.empty() ? columns[i].name : columns[i].name + " [" + columns[i].unit + "]";
}

}  // namespace

void plot_density(const PlotOptions& options, torch::Device device) {
  check(options.files.size() == 1, "plot density: draws one model, got ", options.files.size(), " files");
  const auto& file = options.files.front();
  const auto model = read_model(file);
  const auto flow = flow_from(model, file);
  const auto features = flow->space().size();
  check(features <= 2, file, ": has ", features,
        " columns; density draws flows of one or two (corner draws samples of any)");
  check(static_cast<int64_t>(options.context_row.size()) == flow->context_size(), file, ": takes a context of ",
        flow->context_size(), " values; --context-row gives ", options.context_row.size());
  flow->to(device);
  torch::NoGradGuard no_grad;
  const auto tensors = flow->tensor_options();
  const auto context = flow->context_size() > 0
                           ? torch::tensor(options.context_row, torch::kFloat64).to(tensors).view({1, -1})
                           : Tensor();
  const auto samples = flow->draw({20000}, context).value.to(torch::kCPU, torch::kFloat64);
  const int64_t resolution = features == 1 ? 1000 : 240;
  const auto density_at = [&](const Tensor& points) {
    std::vector<Tensor> parts;
    for (const auto& part : points.split(8192))
      parts.push_back(flow->log_prob(part.to(tensors), context).exp().to(torch::kCPU, torch::kFloat64));
    return torch::cat(parts);
  };

  Gnuplot picture(options.output, features == 1 ? 900 : 760, features == 1 ? 520 : 660);
  picture << "unset key; set border lc rgb '#444444'; set tics nomirror"
          << "set xlabel " + quoted(label(model.columns, 0));
  if (!options.title.empty()) picture << "set title " + quoted(options.title);
  const auto x = window(flow->space().axes[0], samples.select(1, 0), resolution);
  if (features == 1) {
    const auto table = torch::stack({x.centres(), density_at(x.centres().unsqueeze(1))}, 1);
    picture << "set ylabel 'density'; set border 3; set yrange [0:*]"
            << c10::str("set xrange [", x.lower, ":", x.upper(), "]")
            << "plot " + picture.data(table) + " using 1:2" + filled(colours[0]);
  } else {
    const auto y = window(flow->space().axes[1], samples.select(1, 1), resolution);
    const auto grid = torch::stack({x.centres().repeat_interleave(y.count), y.centres().repeat({x.count})}, 1);
    const auto density = density_at(grid);
    // A few very high points would leave the rest dark.
    const double top = std::get<0>(density.sort())[density.numel() - 1 - density.numel() / 1000].item<double>();
    picture << "set ylabel " + quoted(label(model.columns, 1)) << "set cblabel 'density'"
            << c10::str("set xrange [", x.lower, ":", x.upper(), "]; set yrange [", y.lower, ":", y.upper(),
                        "]; set cbrange [0:", top, "]")
            << "set palette defined (0 '#440154', 1 '#46327e', 2 '#365c8d', 3 '#277f8e', 4 '#1fa187', 5 '#4ac16d', 6 "
               "'#a0da39', 7 '#fde725')"
            << "plot " + picture.data(torch::cat({grid, density.unsqueeze(1)}, 1)) + " using 1:2:3 with image";
  }
  picture.draw();
}

}  // namespace diffeo::apps
