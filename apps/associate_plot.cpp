#include "diffeo/apps/associate_plot.h"

#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "diffeo/apps/gnuplot.h"
#include "diffeo/apps/plot.h"
#include "diffeo/trainers/tail_probability.h"

namespace diffeo::apps {
namespace {

constexpr double smallest = 1e-320;

Tensor evidence(const Tensor& p) { return -p.to(torch::kFloat64).clamp_min(smallest).log10(); }

/// 2 before 10, and numbers before X.
std::pair<int64_t, std::string> rank_of(const std::string& chromosome) {
  int64_t number = 0;
  const auto [end, problem] = std::from_chars(chromosome.data(), chromosome.data() + chromosome.size(), number);
  if (problem == std::errc() && end == chromosome.data() + chromosome.size()) return {number, ""};
  return {INT64_MAX, chromosome};
}

void style(Gnuplot& picture, const std::string& title) {
  picture << "set border 3 lc rgb '#444444'; set tics nomirror out";
  if (!title.empty()) picture << "set title " + quoted(title);
}

}  // namespace

void plot_manhattan(const std::string& file, const std::vector<Marker>& markers, const Tensor& p,
                    double false_discovery_level, const std::string& title) {
  struct Place {
    double length = 0, begin = 0;
    std::vector<int64_t> members;
  };
  std::map<std::pair<int64_t, std::string>, Place> places;
  const bool positions =
      std::any_of(markers.begin(), markers.end(), [](const Marker& marker) { return marker.position > 0; });
  for (size_t i = 0; i < markers.size(); ++i) {
    auto& place = places[rank_of(markers[i].chromosome)];
    place.members.push_back(static_cast<int64_t>(i));
    place.length = positions ? std::max(place.length, static_cast<double>(markers[i].position))
                             : static_cast<double>(place.members.size());
  }
  double total = 0;
  for (const auto& [rank, place] : places) total += place.length;
  const double gap = 0.006 * total;
  const auto heights = evidence(p).contiguous();
  const double bonferroni = -std::log10(0.05 / static_cast<double>(markers.size()));

  Gnuplot picture(file, 1100, 460);
  style(picture, title);
  double begin = 0;
  std::string tics, command;
  int index = 0;
  for (auto& [rank, place] : places) {
    place.begin = begin;
    std::vector<double> points;
    for (size_t i = 0; i < place.members.size(); ++i) {
      const auto member = place.members[i];
      points.push_back(begin + (positions ? static_cast<double>(markers[member].position) : static_cast<double>(i)));
      points.push_back(heights[member].item<double>());
    }
    const auto table = torch::tensor(points, torch::kFloat64).view({-1, 2});
    command +=
        c10::str(command.empty() ? "plot " : ", ", picture.data(table), " using 1:2 with points pt 7 ps 0.35 lc rgb '",
                 index++ % 2 == 0 ? colours[0] : "#8fb0cf", "' notitle");
    const auto name = rank.first == INT64_MAX ? rank.second : std::to_string(rank.first);
    tics += c10::str(tics.empty() ? "" : ", ", quoted(name), " ", begin + place.length / 2);
    begin += place.length + gap;
  }
  picture << c10::str("set xrange [", -gap, ":", begin,
                      "]; set yrange [0:", std::max(1.05 * heights.max().item<double>(), bonferroni + 0.5), "]")
          << "set xtics (" + tics + ") font ',9' scale 0; set xlabel 'chromosome'; set ylabel '-log_{10} p'"
          << "set key top left Left reverse opaque samplen 2";
  command += c10::str(", ", bonferroni, " with lines dt 2 lc rgb '#777777' title '5 % by Bonferroni'");
  if (false_discovery_level > 0)
    command += c10::str(", ", -std::log10(std::max(false_discovery_level, smallest)),
                        " with lines dt 3 lw 1.5 lc rgb '", colours[1], "' title 'false discovery rate'");
  picture << command;
  picture.draw();
}

void plot_quantiles(const std::string& file, const Tensor& p, double inflation, const std::string& title) {
  const auto observed = std::get<0>(evidence(p).sort(0, /*descending=*/true));
  const auto count = observed.size(0);
  const auto total = static_cast<double>(count);
  const auto expected = evidence((torch::arange(1, count + 1, torch::kFloat64) - 0.5) / total);
  std::vector<double> band;
  int64_t before = 0;
  for (int i = 0; i <= 120; ++i) {
    const auto rank = std::max<int64_t>(before + 1, std::llround(std::pow(total, i / 120.0)));
    if (rank > count) break;
    before = rank;
    const auto a = static_cast<double>(rank), b = total + 1 - a;
    for (double value : {-std::log10((a - 0.5) / total), -std::log10(beta_quantile(0.975, a, b)),
                         -std::log10(beta_quantile(0.025, a, b))})
      band.push_back(value);
  }
  Gnuplot picture(file, 560, 520);
  style(picture, title);
  const double reach = expected[0].item<double>() * 1.04;
  picture << c10::str("set xrange [0:", reach, "]; set yrange [0:", std::max(reach, 1.05 * observed[0].item<double>()),
                      "]")
          << "set xlabel 'expected -log_{10} p'; set ylabel 'observed -log_{10} p'; set key top left Left reverse";
  const auto shade = picture.data(torch::tensor(band, torch::kFloat64).view({-1, 3}));
  const auto points = picture.data(torch::stack({expected, observed}, 1));
  char text[64];
  std::snprintf(text, sizeof text, "markers, inflation %.3f", inflation);
  picture << c10::str("plot ", shade, " using 1:2:3 with filledcurves fs solid 0.25 noborder lc rgb '#777777' title ",
                      "'95 % of independent tests', x with lines lc rgb '#777777' notitle, ", points,
                      " using 1:2 with points pt 7 ps 0.4 lc rgb '", colours[0], "' title ", quoted(text));
  picture.draw();
}

}  // namespace diffeo::apps
