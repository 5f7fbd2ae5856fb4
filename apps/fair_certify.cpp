#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>

#include "diffeo/apps/command.h"
#include "diffeo/apps/fair.h"
#include "diffeo/apps/gnuplot.h"
#include "diffeo/apps/output.h"
#include "diffeo/apps/signals.h"
#include "diffeo/apps/text.h"

namespace diffeo::apps {
namespace {

struct Wishes {
  std::string model, data, csv, plot;
  std::vector<double> gammas;
  AuditOptions audit;
};

/// One line of the report: a trade-off, and the rows of one label.
struct Line {
  double gamma;
  const Audit* audit;
  const StratumAudit* stratum;
  double error;  ///< of the densities, on the scale of the accuracy

  const AdversaryScore& best(const std::vector<AdversaryScore>& scores) const {
    return *std::max_element(scores.begin(), scores.end(),
                             [](const auto& a, const auto& b) { return a.accuracy < b.accuracy; });
  }
};

std::string percent(double value) { return std::isnan(value) ? "-" : number(100 * value, 4); }

void print(const std::vector<Line>& lines, double confidence) {
  Columns table("rrrrrrrrrrr");
  const auto upper = "up to (" + number(100 * confidence, 4) + " %)";
  table.row({"gamma", "label", "bound", upper, "+ densities", "adversary", "on draws", "task", "own head", "gap"});
  for (const auto& line : lines) {
    const auto& rows = line.best(line.stratum->on_rows);
    table.row({number(line.gamma, 4), line.stratum->label < 0 ? "all" : std::to_string(line.stratum->label),
               percent(line.stratum->certificate.accuracy), percent(line.stratum->certificate.upper()),
               percent(std::min(1.0, line.stratum->certificate.upper() + line.error)),
               percent(rows.accuracy) + " +- " + number(100 * rows.deviation, 2),
               percent(line.best(line.stratum->on_draws).accuracy), percent(line.audit->task_accuracy),
               percent(line.audit->head_accuracy), percent(line.stratum->gap)});
  }
  std::cout << "balanced accuracy of adversaries that guess the group, and accuracy of the task, in %\n";
  table.print();
  std::cout
      << "bound: of every adversary if the densities are right; + densities: with how far a classifier tells them\n"
         "from held-out rows, a lower limit of their error; adversary: the better of two networks on test rows\n"
         "gap: largest difference between groups in how often the task's classifier says 1, among rows of the label\n";
}

void write_csv(const std::string& file, const std::vector<Line>& lines) {
  std::ofstream out(file);
  check(out.good(), file, ": cannot write");
  out << "gamma,label,delta,delta_weighted,bound,hoeffding,clopper_pearson,density_error,";
  for (const char* where : {"rows", "draws"})
    for (const auto& score : lines.front().stratum->on_rows) {
      auto name = "adversary " + score.name + " " + where;
      std::replace(name.begin(), name.end(), ' ', '_');
      out << name << ',' << name << "_deviation,";
    }
  out << "task_accuracy,task_deviation,head_accuracy,gap\n";
  const auto text = [](double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.8g", value);
    return std::isnan(value) ? std::string() : std::string(digits);
  };
  for (const auto& line : lines) {
    const auto& certificate = line.stratum->certificate;
    out << text(line.gamma) << ',' << (line.stratum->label < 0 ? "all" : std::to_string(line.stratum->label));
    for (const double value : {certificate.delta(), line.stratum->weighted_delta, certificate.accuracy,
                               certificate.hoeffding, certificate.clopper_pearson, line.error})
      out << ',' << text(value);
    for (const auto* scores : {&line.stratum->on_rows, &line.stratum->on_draws})
      for (const auto& score : *scores) out << ',' << text(score.accuracy) << ',' << text(score.deviation);
    for (const double value :
         {line.audit->task_accuracy, line.audit->task_deviation, line.audit->head_accuracy, line.stratum->gap})
      out << ',' << text(value);
    out << '\n';
  }
  check(out.flush().good(), file, ": cannot write; is the disk full?");
}

/// The task's accuracy over the bound and over what adversaries reached.
void draw(const std::string& file, const std::vector<Line>& lines) {
  std::vector<Tensor> bound, reached;
  Gnuplot picture(file, 900, 560);
  picture << "set xlabel 'balanced accuracy of adversaries that guess the group [%]'; set ylabel 'accuracy of the task "
             "[%]'; set border 3 lc rgb '#444444'; set tics nomirror; set key bottom right Left reverse; set grid lc "
             "rgb '#dddddd'; set offsets graph 0.05, graph 0.05, graph 0.1, graph 0.1";
  for (const auto& line : lines) {
    const double task = 100 * line.audit->task_accuracy, deviation = 100 * line.audit->task_deviation;
    const auto& certificate = line.stratum->certificate;
    const auto& rows = line.best(line.stratum->on_rows);
    bound.push_back(torch::tensor(
        {100 * certificate.accuracy, task, 100 * (certificate.upper() - certificate.accuracy), line.gamma},
        torch::kFloat64));
    reached.push_back(torch::tensor({100 * rows.accuracy, task, 100 * rows.deviation, deviation}, torch::kFloat64));
  }
  const auto bounds = picture.data(torch::stack(bound)), adversaries = picture.data(torch::stack(reached));
  picture << "plot " + bounds +
                 " using 1:2 with linespoints lc rgb '#1b6ca8' lw 1.5 pt 7 ps 1.1 title 'certified bound'," + bounds +
                 " using 1:2:(sprintf('%g', $4)) with labels offset 0,1 tc rgb '#1b6ca8' font ',9' notitle," + bounds +
                 " using 1:2:1:($1+$3):2:2 with xyerrorbars lc rgb '#1b6ca8' ps 0 notitle," + adversaries +
                 " using 1:2:3:4 with xyerrorbars lc rgb '#d1495b' pt 5 ps 0.9 title 'best adversary on test rows'";
  picture.draw();
}

int run(const Command& command, Wishes& wishes) {
  if (!wishes.csv.empty()) check_writable(wishes.csv);
  if (!wishes.plot.empty()) check_writable(wishes.plot);
  const auto dtype = command.dtype(torch::kFloat64);  // log determinants of both directions have to agree
  auto inputs = read_fair_inputs(wishes.model, wishes.data, dtype);
  auto& model = inputs.model;
  const auto& held_out = inputs.test.size() > 0 ? inputs.test : inputs.valid;
  check(held_out.size() > 0, wishes.data, ": has no test rows to try adversaries on");
  const auto device = command.device();
  const auto seed = command.common().seed;
  if (wishes.gammas.empty()) wishes.gammas = model.gammas;
  check(!wishes.gammas.empty(), wishes.model, ": holds no encoders yet");
  FairSplits rows;
  if (model.method == "flow") {
    for (auto& stratum : model.densities)
      for (auto& density : stratum) density->to(device, dtype);
    at::manual_seed(seed);
    rows = {points_of(*model.scales, inputs.train, device), points_of(*model.scales, inputs.valid, device),
            points_of(*model.scales, held_out, device)};
  } else {
    rows = {cells_of(*model.cells, inputs.train), cells_of(*model.cells, inputs.valid),
            cells_of(*model.cells, held_out)};
  }
  std::vector<Audit> audits;
  for (const double gamma : wishes.gammas) {
    stop_if_interrupted();
    const auto place = within("--gamma", [&] { return model.place_of(gamma); });
    if (model.method == "matching") {
      audits.push_back(examine_cells(*model.cells, model.matching, gamma, rows, wishes.audit, seed));
    } else {
      model.flows[place]->to(device, dtype);
      audits.push_back(
          examine(*model.flows[place], model.densities, labels_of(model.criterion), rows, wishes.audit, seed));
    }
  }
  std::vector<Line> lines;
  const auto errors = model.density_errors();
  for (size_t i = 0; i < audits.size(); ++i)
    for (size_t stratum = 0; stratum < audits[i].strata.size(); ++stratum)
      lines.push_back({wishes.gammas[i], &audits[i], &audits[i].strata[stratum], errors.at(stratum)});
  print(lines, wishes.audit.confidence);
  if (!wishes.csv.empty()) write_csv(wishes.csv, lines);
  if (!wishes.plot.empty()) draw(wishes.plot, lines);
  return fine;
}

}  // namespace

int fair_certify(const Arguments& arguments) {
  Wishes wishes;
  Command command("fair certify", "bound what any adversary can tell from the representations, and try",
                  "MODEL.h5 DATA.h5 [--csv FILE] [--plot FILE]",
                  {"diffeo fair certify fair.h5 law.h5",
                   "diffeo fair certify fair.h5 law.h5 --csv tradeoff.csv --plot tradeoff.png"});
  command.argument("model", wishes.model, "model file of diffeo fair train");
  command.argument("data", wishes.data, "HDF5 file with the same objects and columns as the training data");
  command.option("gamma", wishes.gammas, "which of the model's trade-offs; default: all");
  command.option("csv", wishes.csv, "write the table to this file, with all figures", "FILE");
  command.option("plot", wishes.plot, "draw the trade-off: a .png, .svg or .pdf file", "FILE");
  command.options("examination", wishes.audit);
  if (!command.parse(arguments)) return fine;
  check(wishes.audit.confidence > 0 && wishes.audit.confidence < 1, "--confidence: must lie between 0 and 1, got ",
        wishes.audit.confidence);
  check(wishes.audit.samples >= 1, "--samples: must be at least 1, got ", wishes.audit.samples);
  check(wishes.audit.adversary_steps >= 1, "--adversary-steps: must be at least 1, got ", wishes.audit.adversary_steps);
  return run(command, wishes);
}

}  // namespace diffeo::apps
