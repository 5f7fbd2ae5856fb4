#include "diffeo/apps/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <iostream>

#include "diffeo/apps/text.h"
#include "diffeo/layers/base/system_error.h"

namespace diffeo::apps {
namespace {

constexpr auto redraw_after = std::chrono::milliseconds(100);
constexpr auto log_after = std::chrono::seconds(10);

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }

/// "loss 0.5123, validation 0.5301 (best 0.5288), 1.2M rows/s, ..." as far as it is known.
std::string figures(const Progress& p) {
  auto text = "loss " + number(p.loss);
  if (!std::isnan(p.valid_loss))
    text += ", validation " + number(p.valid_loss) +
            (p.valid_loss <= p.best_valid_loss ? " (best)" : " (best " + number(p.best_valid_loss) + ")");
  text += ", " + grouped(p.rows_per_second) + " rows/s";
  if (p.skipped_steps > 0) text += c10::str(", ", p.skipped_steps, " steps skipped");
  return text;
}

int terminal_width() {
  winsize size = {};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

ProgressDisplay::ProgressDisplay(const std::string& log, bool resumed)
    : terminal_(isatty(STDOUT_FILENO)), log_name_(log) {
  if (log.empty()) return;
  log_.open(log, resumed ? std::ios::app : std::ios::trunc);
  check_system(log_.good(), log, ": cannot write the log");
}

void ProgressDisplay::show(const Progress& progress) {
  const auto now = Clock::now();
  if (terminal_ && (progress.evaluated || now - drawn_ > redraw_after)) draw_bar(progress);
  if (!terminal_ && progress.evaluated) print_line(progress);
  if (!log_.is_open() || (!progress.evaluated && now - logged_ < log_after)) return;
  logged_ = now;
  note(progress.evaluated ? "evaluation" : "progress", {{"step", progress.step},
                                                        {"epoch", progress.epoch},
                                                        {"loss", number_or_null(progress.loss)},
                                                        {"valid_loss", number_or_null(progress.valid_loss)},
                                                        {"best_valid_loss", number_or_null(progress.best_valid_loss)},
                                                        {"learning_rate", progress.learning_rate},
                                                        {"rows_per_second", progress.rows_per_second},
                                                        {"skipped_steps", progress.skipped_steps},
                                                        {"seconds", progress.seconds},
                                                        {"seconds_left", number_or_null(progress.seconds_left)}});
}

void ProgressDisplay::note(const std::string& event, const Json& values) {
  if (!log_.is_open()) return;
  Json line = {{"event", event}};
  line.update(values);
  log_ << line.dump() << std::endl;
  check(log_.good(), log_name_, ": cannot write the log; is the disk full?");
}

void ProgressDisplay::draw_bar(const Progress& p) {
  drawn_ = Clock::now();
  bar_shown_ = true;
  const auto passed = p.seconds + p.seconds_left;
  const double share =
      p.total_steps > 0 ? static_cast<double>(p.step) / static_cast<double>(p.total_steps) : p.seconds / passed;
  std::string bar;
  constexpr int bar_width = 12;
  int room = terminal_width() - 1;
  if (std::isfinite(share)) {
    for (int i = 0; i < bar_width; ++i) bar += i < share * bar_width - 0.5 ? "█" : "░";
    char percent[16];
    std::snprintf(percent, sizeof percent, " %3.0f %%  ", 100 * std::min(1.0, share));
    bar += percent;
    room -= bar_width + 8;
  }
  // What matters most comes first: a narrow terminal cuts the rest.
  auto rest = std::isfinite(p.seconds_left) ? duration(p.seconds_left) + " left, " : duration(p.seconds) + ", ";
  rest += c10::str("step ", p.step, ", ", figures(p));
  std::cout << "\r\033[K" << bar << rest.substr(0, std::max(20, room)) << std::flush;
}

void ProgressDisplay::print_line(const Progress& p) {
  std::cout << "step " << p.step;
  if (p.total_steps > 0) std::cout << " of " << p.total_steps;
  std::cout << ", epoch " << p.epoch << ": " << figures(p) << ", " << duration(p.seconds);
  if (std::isfinite(p.seconds_left)) std::cout << ", " << duration(p.seconds_left) << " left";
  std::cout << std::endl;
}

void ProgressDisplay::end() {
  if (bar_shown_) std::cout << std::endl;
  bar_shown_ = false;
}

}  // namespace diffeo::apps
