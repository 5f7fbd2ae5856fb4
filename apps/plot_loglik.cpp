#include <cmath>

#include "diffeo/apps/gnuplot.h"
#include "diffeo/apps/plot.h"
#include "diffeo/apps/tables.h"

namespace diffeo::apps {

void plot_loglik(const PlotOptions& options) {
  std::vector<Tensor> all;
  for (const auto& file : options.files) {
    TableSource source{file, object_in(file, options.object, {"/log_prob"}), {}};
    auto info = table_info(source);
    // What `evaluate -o` wrote beside it is left out.
    for (const auto& column : info.columns)
      if (column.name == "log_prob" && info.columns.size() > 1) source.columns = {"log_prob"};
    if (!source.columns.empty()) info = table_info(source);
    check(info.columns.size() == 1, file, ": ", source.object, " has ", info.columns.size(),
          " columns; loglik draws one, such as diffeo evaluate -o writes");
    // Log densities may be -inf outside of the support: they count, but have no place in the picture.
    const auto values = read_table(source, torch::kFloat64, 0, -1, false).values.flatten();
    all.push_back(values.index({values.isfinite()}));
    check(all.back().numel() > 0, file, ": ", source.object, " holds no finite log-likelihood");
  }
  const auto joined = torch::cat(all);
  const auto wanted =
      options.bins > 0 ? options.bins : std::clamp<int64_t>(std::llround(std::pow(joined.numel(), 0.42)), 20, 120);
  const auto bins = bins_for(joined, wanted);
  Gnuplot picture(options.output, 900, 520);
  picture << "set xlabel 'log-likelihood [nats]'; set ylabel 'share of rows per nat'; set border 3 lc rgb '#444444'; "
             "set tics nomirror; set key top left Left reverse"
          << c10::str("set xrange [", bins.lower, ":", bins.upper(), "]; set yrange [0:*]");
  if (!options.title.empty()) picture << "set title " + quoted(options.title);
  std::string command;
  for (size_t i = 0; i < all.size(); ++i) {
    const double mean = all[i].mean().item<double>();
    const auto colour = std::string(colours[i % std::size(colours)]);
    picture << c10::str("set arrow from ", mean, ", graph 0 to ", mean, ", graph 1 nohead dt 2 lw 1.2 lc rgb '", colour,
                        "'");
    command += (command.empty() ? "plot " : ", ") + picture.data(outline(bins, bins.density(all[i]))) + " using 1:2" +
               filled(colour) + " title " + quoted(c10::str(options.files[i], ": mean ", static_cast<float>(mean)));
  }
  picture << command;
  picture.draw();
}

}  // namespace diffeo::apps
