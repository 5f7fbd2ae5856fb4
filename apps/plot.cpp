#include "diffeo/apps/plot.h"

#include <cmath>

namespace diffeo::apps {

int plot(const Arguments& arguments) {
  PlotOptions options;
  std::string kind;
  Command command(
      "plot", "draw data, samples, densities and training curves",
      "corner|density|history|loglik|images|interpolation FILES... -o PICTURE.png",
      {"diffeo plot corner moons.h5 samples.h5 -o corner.png   # data against samples, each pair of columns",
       "diffeo plot corner magic.h5 --columns fLength,fWidth,fSize -o columns.pdf",
       "diffeo plot density model.h5 -o density.png            # of a flow in one or two dimensions",
       "diffeo plot history model.h5 -o history.svg            # loss over the steps of training",
       "diffeo plot loglik test.h5 other.h5 -o loglik.png      # log-likelihoods that evaluate wrote",
       "diffeo plot images samples.h5 --grid 6,10 -o grid.png  # rows that are images, of data or samples",
       "diffeo plot interpolation model.h5 faces.h5 -o way.png # from image to image through latent space"});
  command.argument("kind", kind, "corner, density, history, loglik, images or interpolation");
  command.argument("files", options.files,
                   "what to draw: tables for corner (the first is the data), models for density and "
                   "history, output of evaluate for loglik, a table for images, a model and a table for "
                   "interpolation");
  command.option("output,o", options.output, "the picture; .png, .svg or .pdf (images: .png)", "FILE");
  command.options("of the picture", options);
  if (!command.parse(arguments)) return fine;
  command.require("output", "-o picture.png");
  check_choice("kind", kind, {"corner", "density", "history", "loglik", "images", "interpolation"});
  check(options.rows > 0, "--rows: expected 1 or more, got ", options.rows);
  check(options.bins >= 0 && options.bins <= 1000, "--bins: expected a number between 0 and 1000, got ", options.bins);
  if (kind == "corner")
    plot_corner(options);
  else if (kind == "density")
    plot_density(options, command.device());
  else if (kind == "history")
    plot_history(options);
  else if (kind == "loglik")
    plot_loglik(options);
  else if (kind == "images")
    plot_images(options);
  else
    plot_interpolation(options, command.device());
  std::printf("%s\n", options.output.c_str());
  return fine;
}

Table thinned(const TableSource& source, int64_t rows) {
  const auto info = table_info(source);
  if (info.rows <= rows) return read_table(source, torch::kFloat64);
  // Blocks from all over the file rather than single rows: one read each.
  const int64_t blocks = std::min<int64_t>(rows, 50);
  Table table;
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < blocks; ++i) {
    const auto begin = info.rows * i / blocks, length = rows * (i + 1) / blocks - rows * i / blocks;
    table = read_table(source, torch::kFloat64, begin, begin + length);
    parts.push_back(table.values);
  }
  table.values = torch::cat(parts);
  return table;
}

Tensor Bins::centres() const { return (torch::arange(count, torch::kFloat64) + 0.5) * width + lower; }

Tensor Bins::index_of(const Tensor& x) const {
  return ((x - lower) / width).floor().clamp(-1, static_cast<double>(count)).to(torch::kInt64);
}

Tensor Bins::density(const Tensor& x) const {
  const auto counts = torch::bincount(index_of(x) + 1, {}, count + 2).slice(0, 1, count + 1);
  return counts.to(torch::kFloat64) / (static_cast<double>(x.numel()) * width);
}

Bins bins_for(const Tensor& values, int64_t wanted) {
  const auto sorted = std::get<0>(values.sort());
  const auto n = sorted.numel();
  const double lower = sorted[n / 1000].item<double>(), upper = sorted[n - 1 - n / 1000].item<double>();
  if (values.eq(values.round()).all().item<bool>() && upper - lower < 60)
    return {lower - 1, 1, std::llround(upper - lower) + 3};
  const double range = upper > lower ? upper - lower : std::fmax(1e-6, std::fabs(lower) * 1e-3);
  return {lower - 0.06 * range, 1.12 * range / static_cast<double>(wanted), wanted};
}

Tensor outline(const Bins& bins, const Tensor& heights) {
  const auto edges = (torch::arange(bins.count + 1, torch::kFloat64) * bins.width + bins.lower).repeat_interleave(2);
  const auto zero = torch::zeros({1}, torch::kFloat64);
  return torch::stack({edges, torch::cat({zero, heights.repeat_interleave(2), zero})}, 1);
}

std::string filled(const std::string& colour) {
  const auto rgb = "rgb '" + colour + "'";
  return " with filledcurves y1=0 fc " + rgb + " fs transparent solid 0.25 border lc " + rgb;
}

double tick_step(double range, double parts) {
  const double rough = range / parts, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough) return factor * power;
  return 10 * power;
}

}  // namespace diffeo::apps
