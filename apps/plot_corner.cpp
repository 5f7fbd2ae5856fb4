// Corner plots: each column's histogram on the diagonal, each pair of columns below it as a picture of the data with
// contours around 39, 86 and 99 % of the points (one, two and three standard deviations of a normal in the plane).
#include <cmath>
#include <filesystem>

#include "diffeo/apps/gnuplot.h"
#include "diffeo/apps/plot.h"
#include "diffeo/apps/tables.h"
#include "diffeo/apps/text.h"

namespace diffeo::apps {
namespace {

constexpr double masses[] = {0.3935, 0.8647, 0.9889};
constexpr int64_t rows_for_outermost = 5000;  // with fewer the contour around 99 % would follow single points

/// A histogram (rows of x, columns of y) as the density of points.
Tensor histogram_2d(const Bins& x_bins, const Bins& y_bins, const Tensor& x, const Tensor& y) {
  const auto flat = (x_bins.index_of(x) + 1) * (y_bins.count + 2) + y_bins.index_of(y) + 1;
  const auto counts = torch::bincount(flat, {}, (x_bins.count + 2) * (y_bins.count + 2)).to(torch::kFloat64);
  const auto inner = counts.view({x_bins.count + 2, y_bins.count + 2});
  return inner.slice(0, 1, x_bins.count + 1).slice(1, 1, y_bins.count + 1) / static_cast<double>(x.numel());
}

/// Each bin shared with its neighbours by a small bell: contours of counts would follow every fluctuation.
Tensor smoothed(const Tensor& density) {
  auto kernel = torch::tensor({0.06, 0.24, 0.4, 0.24, 0.06}, torch::kFloat64);
  kernel = torch::outer(kernel, kernel).view({1, 1, 5, 5});
  return torch::conv2d(density.view({1, 1, density.size(0), density.size(1)}), kernel, {}, 1, 2)[0][0];
}

/// The densities above which the given masses lie, largest first.
std::vector<double> levels(const Tensor& density, int64_t rows) {
  const auto sorted = std::get<0>(density.flatten().sort(0, /*descending=*/true));
  const auto mass = sorted.cumsum(0) / sorted.sum().clamp_min(1e-300);
  std::vector<double> result;
  for (const double wanted : masses) {
    if (wanted == masses[2] && rows < rows_for_outermost) break;
    const auto at = std::min(mass.lt(wanted).sum().item<int64_t>(), sorted.numel() - 1);
    const double level = sorted[at].item<double>();
    if (level > 0 && (result.empty() || level < result.back())) result.push_back(level);
  }
  return result;
}

/// (count_x (count_y + 1), 3): x, y, density, with an empty line after each x, as gnuplot wants grids.
Tensor grid(const Bins& x_bins, const Bins& y_bins, const Tensor& density) {
  const auto x = x_bins.centres().view({-1, 1}).expand_as(density), y = y_bins.centres().expand_as(density);
  const auto rows = torch::stack({x, y, density}, 2);
  const auto gap = torch::full({x_bins.count, 1, 3}, std::nan(""), torch::kFloat64);
  return torch::cat({rows, gap}, 1).view({-1, 3});
}

struct Layer {
  std::string name;
  Table table;
};

std::vector<Layer> read_layers(const PlotOptions& options) {
  std::vector<Layer> layers;
  for (const auto& file : options.files) {
    TableSource source{file, object_in(file, options.object, {"/x", "/train/x"}), options.columns};
    // The others are drawn in the columns of the first.
    if (!layers.empty())
      source.columns = names_of(layers.front().table.columns, table_info({file, source.object, {}}).columns);
    auto table = thinned(source, options.rows);
    check(table.values.size(0) > 0, file, ": ", source.object, " has no rows to draw");
    const auto name = std::filesystem::path(file).stem().string() + " (" + grouped(table_info(source).rows) + ")";
    layers.push_back({name, std::move(table)});
    check(table_width(layers.front().table) <= 10 || !options.columns.empty(), file, ": has ",
          table_width(layers.front().table),
          " columns, too many for one picture; choose some with --columns, for example --columns 0:6");
  }
  return layers;
}

}  // namespace

void plot_corner(const PlotOptions& options) {
  check(options.files.size() <= 4, "plot corner: draws at most 4 files, got ", options.files.size());
  const auto layers = read_layers(options);
  const auto& columns = layers.front().table.columns;
  const auto features = static_cast<int64_t>(columns.size());
  const auto rows = layers.front().table.values.size(0);
  const auto chosen = [&](double power, int64_t least, int64_t most) {
    return options.bins > 0 ? options.bins : std::clamp<int64_t>(std::llround(std::pow(rows, power)), least, most);
  };
  std::vector<Bins> bins, coarse;
  for (int64_t i = 0; i < features; ++i) {
    bins.push_back(bins_for(layers.front().table.values.select(1, i), chosen(0.4, 16, 60)));
    coarse.push_back(bins_for(layers.front().table.values.select(1, i), chosen(0.36, 16, 44)));
  }

  const int panel = features == 1 ? 420 : std::clamp<int>(static_cast<int>(1150 / features), 118, 330);
  const int left = 96, bottom = 78, top = 26, right = 22, gap = 8;
  const int width = left + right + panel * static_cast<int>(features),
            height = bottom + top + panel * static_cast<int>(features);
  Gnuplot picture(options.output, width, height);

  // Contours first: gnuplot writes tables outside of a multiplot.
  std::vector<std::string> contours;
  std::vector<std::string> images;
  std::vector<double> highest;
  int count = 0;
  picture << "set contour base; unset surface; unset key";
  for (int64_t row = 1; row < features; ++row) {
    for (int64_t column = 0; column < row; ++column) {
      std::string drawn;
      for (size_t k = 0; k < layers.size(); ++k) {
        const auto& values = layers[k].table.values;
        const auto density = histogram_2d(coarse[column], coarse[row], values.select(1, column), values.select(1, row));
        const auto smooth = smoothed(density);
        const auto name = picture.data(grid(coarse[column], coarse[row], smooth));
        if (k == 0) images.push_back(name), highest.push_back(smooth.max().item<double>());
        const auto found = levels(smooth, layers[k].table.values.size(0));
        if (found.empty()) continue;
        const auto contour = "$contour" + std::to_string(count++);
        picture << c10::str("set cntrparam levels discrete ", c10::Join(",", found)) << "set table " + contour
                << "splot " + name + " using 1:2:3 with lines"
                << "unset table";
        drawn += c10::str(", ", contour, " using 1:2 with lines lw ", k == 0 ? 1.0 : 1.2, " lc rgb '", colours[k],
                          "' notitle");
      }
      contours.push_back(drawn);
    }
  }

  picture << "unset contour; set surface; unset colorbox; set multiplot"
          << "set palette defined (0 '#ffffff', 0.1 '#eef2f7', 0.5 '#b4c7dd', 1 '#7596ba')"
          << "set border lw 0.8 lc rgb '#444444'; set tics scale 0.6 textcolor rgb '#333333'"
          << "set format '%g'";
  const auto place = [&](int64_t row, int64_t column) {
    const double x0 = left + column * panel, y0 = bottom + (features - 1 - row) * panel;
    return c10::str("set lmargin at screen ", x0 / width, "; set rmargin at screen ", (x0 + panel - gap) / width,
                    "; set bmargin at screen ", y0 / height, "; set tmargin at screen ", (y0 + panel - gap) / height);
  };
  const auto label = [&](const Column& column) {
    return column.unit.empty() ? column.name : column.name + " [" + column.unit + "]";
  };
  const auto ticks = [&](const char* axis, const Bins& b, bool shown) {
    const double step = tick_step(b.upper() - b.lower, panel < 150 ? 2.5 : 4);
    const std::string style = !shown ? " format ''" : *axis == 'x' && features > 3 ? " rotate by 45 right" : "";
    return c10::str("set ", axis, "range [", b.lower, ":", b.upper(), "]; set ", axis, "tics ", step, style,
                    shown ? " format '%g'" : "");
  };
  const std::string font = features > 6 ? " font ',9'" : "";
  size_t pair = 0;
  for (int64_t row = 0; row < features; ++row) {
    for (int64_t column = 0; column <= row; ++column) {
      picture << "reset_labels = 0; unset label" << place(row, column);
      const double x0 = left + column * panel, y0 = bottom + (features - 1 - row) * panel;
      if (row == features - 1)
        picture << c10::str("set label 1 ", quoted(label(columns[column])), " at screen ", (x0 + panel / 2.0) / width,
                            ", screen ", 22.0 / height, " center", font);
      if (column == 0 && row > 0)
        picture << c10::str("set label 2 ", quoted(label(columns[row])), " at screen ", 20.0 / width, ", screen ",
                            (y0 + panel / 2.0) / height, " center rotate by 90", font);
      picture << ticks("x", coarse[column], row == features - 1);
      if (row == column) {
        picture << "unset ytics";
        std::string command;
        double highest_bar = 0;
        for (size_t k = 0; k < layers.size(); ++k) {
          const auto density = bins[row].density(layers[k].table.values.select(1, row));
          const auto name = picture.data(outline(bins[row], density));
          highest_bar = std::max(highest_bar, density.max().item<double>());
          const std::string style =
              k == 0 ? filled(colours[k]) : std::string(" with lines lw 1.4 lc rgb '") + colours[k] + "'";
          command += (command.empty() ? "plot " : ", ") + name + " using 1:2" + style + " notitle";
        }
        picture << c10::str("set yrange [0:", 1.06 * highest_bar, "]") << command;
      } else {
        picture << ticks("y", coarse[row], column == 0) << c10::str("set cbrange [0:", highest[pair], "]")
                << "plot " + images[pair] + " using 1:2:3 with image notitle" + contours[pair];
        ++pair;
      }
    }
  }
  // The legend stands in the empty corner.
  picture << "unset label; unset border; unset tics; unset xlabel; unset ylabel; set xrange [0:1]; set yrange [0:1]"
          << "set lmargin at screen 0; set rmargin at screen 1; set bmargin at screen 0; set tmargin at screen 1"
          << c10::str("set key at screen ", 1 - 14.0 / width, ", screen ", 1 - (features == 1 ? 4.0 : 14.0) / height,
                      " top right Left reverse samplen 2", features == 1 ? " horizontal" : "");
  if (!options.title.empty() && features > 1)
    picture << c10::str("set label 1 ", quoted(options.title), " at screen ", 1 - 20.0 / width, ", screen ",
                        1 - (40.0 + 22.0 * layers.size()) / height, " right font ',14'");
  std::string legend;
  for (size_t k = 0; k < layers.size(); ++k)
    legend += (legend.empty() ? "plot " : ", ") +
              c10::str("NaN with lines lw 2 lc rgb '", colours[k], "' title ", quoted(layers[k].name));
  picture << legend << "unset multiplot";
  picture.draw();
}

}  // namespace diffeo::apps
