#include <cmath>

#include "diffeo/apps/gnuplot.h"
#include "diffeo/apps/plot.h"
#include "diffeo/data/model_file.h"

namespace diffeo::apps {
namespace {

/// (n, 2): step and value of `key` in each entry that has it.
Tensor curve_of(const Json& history, const char* key) {
  std::vector<double> values;
  for (const auto& item : history)
    if (item.contains("step") && item.contains(key) && item[key].is_number())
      values.insert(values.end(), {item["step"].get<double>(), item[key].get<double>()});
  return torch::tensor(values, torch::kFloat64).view({-1, 2});
}

}  // namespace

void plot_history(const PlotOptions& options) {
  Gnuplot picture(options.output, 900, 520);
  picture << "set xlabel 'step'; set ylabel 'loss [nats]'; set grid lc rgb '#dddddd' lw 0.6; set border 3 lc rgb "
             "'#444444'; set tics nomirror"
          << "set key top right; set format x '%.0f'; set xrange [0:*]";
  if (!options.title.empty()) picture << "set title " + quoted(options.title);
  std::string command;
  std::vector<double> all;
  for (size_t i = 0; i < options.files.size(); ++i) {
    const auto& file = options.files[i];
    const auto history = read_model(file).history;
    const auto training = curve_of(history, "loss"), validation = curve_of(history, "valid_loss");
    check(training.size(0) > 0, file, ": this model holds no training history");
    const auto prefix = options.files.size() == 1 ? "" : file + ": ";
    const char* colour = colours[i % std::size(colours)];
    const auto add = [&](const Tensor& curve, const std::string& style, const std::string& name) {
      if (curve.size(0) == 0) return;
      command += (command.empty() ? "plot " : ", ") + picture.data(curve) + " using 1:2 with lines " + style +
                 " lc rgb '" + colour + "' title " + quoted(prefix + name);
    };
    add(training, "lw 1.2 dt 2", "training");
    add(validation, "lw 2", "validation");
    if (validation.size(0) == 0) continue;
    const auto best = validation.select(1, 1).argmin().item<int64_t>();
    command += ", " + picture.data(validation.slice(0, best, best + 1)) +
               " using 1:2 with points pt 7 ps 1.1 lc rgb '" + colour + "' title " +
               quoted(c10::str(prefix, "best: ", validation[best][1].item<float>(), " at step ",
                               validation[best][0].item<int64_t>()));
  }
  picture << command;
  picture.draw();
}

}  // namespace diffeo::apps
