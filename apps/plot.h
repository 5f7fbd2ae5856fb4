#pragma once

#include "diffeo/apps/command.h"
#include "diffeo/data/table.h"

namespace diffeo::apps {

/// What the kinds of pictures are given. Empty or 0 where the user left it to us.
struct PlotOptions {
  std::vector<std::string> files;
  std::string output, object, title;
  std::vector<std::string> columns;
  std::vector<double> context_row;
  int64_t rows = 50000, bins = 0, magnify = 0;
  std::vector<int64_t> grid{8, 8}, image;
  std::string layout;
  std::vector<double> range{0, 255};
  static constexpr auto fields() {
    using O = PlotOptions;
    return std::tuple{optional("object", &O::object, "object of the tables; empty: /x, /train/x or the only one"),
                      optional("columns", &O::columns, "columns by name, index or range; empty: all, at most 10"),
                      optional("rows", &O::rows, "at most this many rows of each file, spread evenly"),
                      optional("bins", &O::bins, "bins of a histogram; 0: chosen from the number of rows"),
                      optional("context_row", &O::context_row, "context at which a conditional density is drawn"),
                      optional("title", &O::title, "title of the picture"),
                      optional("grid", &O::grid, "ROWS,COLUMNS of images; of an interpolation: pairs and steps"),
                      optional("image", &O::image, "C,H,W of rows that are images; where the data say it: theirs"),
                      optional("layout", &O::layout, "of images in rows: nchw or nhwc; where the data say it: theirs"),
                      optional("range", &O::range, "values of images that are black and white"),
                      optional("magnify", &O::magnify, "pixels of the picture for one of an image; 0: up to 4")};
  }
};

void plot_corner(const PlotOptions& options);
void plot_density(const PlotOptions& options, torch::Device device);
void plot_history(const PlotOptions& options);
void plot_loglik(const PlotOptions& options);
/// A grid of the first images of a table, or of what a flow makes of points between pairs of them in latent space.
void plot_images(const PlotOptions& options);
void plot_interpolation(const PlotOptions& options, torch::Device device);

/// At most `rows` rows, spread evenly over a table, in float64.
Table thinned(const TableSource& source, int64_t rows);

/// Equal intervals over a column.
struct Bins {
  double lower = 0, width = 1;
  int64_t count = 1;

  double upper() const { return lower + width * static_cast<double>(count); }
  Tensor centres() const;                  ///< (count)
  Tensor index_of(const Tensor& x) const;  ///< (n) int64; -1 and `count` for values outside
  Tensor density(const Tensor& x) const;   ///< (count) of all values (n), those outside too
};

/// About `wanted` bins over the central 99.8 % of values (n), with a margin; one for each integer where all are whole
/// numbers and few.
Bins bins_for(const Tensor& values, int64_t wanted);

/// The outline of a histogram: (2 n + 2, 2) points.
Tensor outline(const Bins& bins, const Tensor& heights);

/// How gnuplot fills the area under an outline, with a line along it.
std::string filled(const std::string& colour);

/// A step of 1, 2 or 5 times a power of ten that divides `range` into about `parts`.
double tick_step(double range, double parts);

// One set of colours for all pictures: data, samples, a third.
constexpr const char* colours[] = {"#28527a", "#e07a1f", "#3a8f5c", "#a03b72", "#777777", "#7a5230"};

}  // namespace diffeo::apps
