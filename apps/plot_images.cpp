#include "diffeo/apps/images.h"
#include "diffeo/apps/output.h"
#include "diffeo/apps/plot.h"
#include "diffeo/apps/png.h"
#include "diffeo/apps/tables.h"
#include "diffeo/data/dequantize.h"
#include "diffeo/data/image_rows.h"
#include "diffeo/flows/model.h"

namespace diffeo::apps {
namespace {

constexpr int64_t gap = 2;               ///< pixels between images
constexpr int64_t about_a_screen = 900;  ///< pixels that a magnified grid takes at most

void check_picture(const PlotOptions& options) {
  check(options.output.ends_with(".png"), options.output,
        ": pictures of images are PNG; give a name that ends in .png");
  check(options.grid.size() == 2 && options.grid[0] >= 1 && options.grid[1] >= 1,
        "--grid: expected ROWS,COLUMNS, each at least 1, got ", Json(options.grid).dump());
  check(options.grid[0] <= 4096 && options.grid[1] <= 4096, "--grid: at most 4096,4096, got ",
        Json(options.grid).dump());
  check(options.range.size() == 2 && options.range[0] < options.range[1],
        "--range: expected the values of black and white, got ", Json(options.range).dump());
  check_choice("--layout", options.layout, {"", "nchw", "nhwc"});
  check(options.magnify >= 0 && options.magnify <= 64, "--magnify: expected 0 to 64, got ", options.magnify);
}

/// How the images of a table lie in its rows.
ImageRows images_in(const PlotOptions& options, const std::string& where, const TableInfo& info) {
  const auto columns = static_cast<int64_t>(info.columns.size());
  return required(images_of_rows(options.image, options.layout, where, info.image_shape, columns), where + ":");
}

/// Images (rows * columns, H, W, C), as bytes, in a grid on white.
Tensor grid_of(const PlotOptions& options, const Tensor& images) {
  const auto rows = options.grid[0], columns = options.grid[1], height = images.size(1), width = images.size(2);
  const auto shown = images.size(3) == 2 ? images.narrow(3, 0, 1) : images;
  auto canvas =
      torch::full({rows * (height + gap) + gap, columns * (width + gap) + gap, shown.size(3)}, 255, torch::kUInt8);
  const auto lower = options.range[0], upper = options.range[1];
  const auto bytes = ((shown.to(torch::kFloat64) - lower) * (255 / (upper - lower)))
                         .nan_to_num(0)
                         .round()
                         .clamp(0, 255)
                         .to(torch::kUInt8);
  for (int64_t i = 0; i < bytes.size(0); ++i)
    canvas.narrow(0, gap + i / columns * (height + gap), height)
        .narrow(1, gap + i % columns * (width + gap), width)
        .copy_(bytes[i]);
  const auto larger = std::max(canvas.size(0), canvas.size(1));
  const auto times = options.magnify > 0 ? options.magnify : std::clamp<int64_t>(about_a_screen / larger, 1, 4);
  return canvas.repeat_interleave(times, 0).repeat_interleave(times, 1);
}

}  // namespace

void plot_images(const PlotOptions& options) {
  check_picture(options);
  check(options.files.size() == 1, "plot images: draws the rows of one file, got ", options.files.size());
  const auto& file = options.files.front();
  const TableSource source{file, object_in(file, options.object, {"/x", "/test/x"}), {}};
  const auto info = table_info(source);
  const auto where = file + ":" + source.object;
  const auto images = images_in(options, where, info);
  const auto count = std::min(info.rows, options.grid[0] * options.grid[1]);
  check(count > 0, where, ": has no rows");
  write_png(options.output, grid_of(options, images.pixels(read_table(source, torch::kFloat32, 0, count).values)));
}

void plot_interpolation(const PlotOptions& options, torch::Device device) {
  check_picture(options);
  check(options.files.size() == 2, "plot interpolation: expected a model and a file of images, got ",
        options.files.size(), " files");
  const auto pairs = options.grid[0], steps = options.grid[1];
  check(steps >= 2, "--grid: an interpolation has at least 2 columns, its ends");
  const auto& file = options.files[1];
  const auto model = read_model(options.files[0]);
  const auto flow = flow_from(model, options.files[0]);
  check(flow->context_size() == 0, options.files[0], ": takes a context; interpolation is for flows without one");
  TableSource source{file, object_in(file, options.object, {"/test/x", "/x"}), {}};
  const auto info = table_info(source);
  const auto where = file + ":" + source.object;
  const auto images = images_in(options, where, info);
  source.columns = names_of(model.columns, info.columns);
  check(flow->space().size() == images.size(), where, ": has ", images.size(), " columns, the model ",
        flow->space().size());
  check(info.rows >= 2 * pairs, where, ": has ", info.rows, " rows; ", pairs, " rows of the grid need ", 2 * pairs);
  flow->to(device);
  torch::NoGradGuard no_grad;
  auto x = read_table(source, torch::kFloat32, 0, 2 * pairs).values;
  const auto columns = dequantized_columns(model);
  if (!columns.empty()) x = dequantize(x, columns, 0);
  const auto z = flow->to_latent(x.to(flow->tensor_options())).value;
  const auto from = z.slice(0, 0, 2 * pairs, 2).unsqueeze(1), to = z.slice(0, 1, 2 * pairs, 2).unsqueeze(1);
  // Along a great circle: points of a normal in many dimensions lie near a sphere, a straight line would leave it.
  const auto angle = ((from * to).sum(-1, true) / (from.norm(2, -1, true) * to.norm(2, -1, true)).clamp_min(1e-30))
                         .clamp(-1, 1)
                         .acos()
                         .clamp(1e-4, 3.14);
  const auto part = torch::linspace(0, 1, steps, z.options()).view({1, steps, 1});
  const auto between = (((1 - part) * angle).sin() * from + (part * angle).sin() * to) / angle.sin();
  const auto back = flow->to_data(between.flatten(0, 1)).value.cpu();
  write_png(options.output, grid_of(options, images.pixels(columns.empty() ? back : back.floor())));
}

}  // namespace diffeo::apps
