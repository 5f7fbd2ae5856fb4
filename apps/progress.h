#pragma once

#include <chrono>
#include <fstream>

#include "diffeo/trainers/fit.h"

namespace diffeo::apps {

/// Shows a run on standard output: a bar that is redrawn on a terminal, else one line for each evaluation; and writes
/// JSON lines to a log for machines.
class ProgressDisplay {
 public:
  /// `log` is empty for none. Throws Error if it cannot be written. An existing log is added to if `resumed`.
  ProgressDisplay(const std::string& log, bool resumed);

  void show(const Progress& progress);
  /// A line of the log: {"event": event, ...values}.
  void note(const std::string& event, const Json& values);
  /// Leaves the bar behind, so that what is printed next starts on a line of its own.
  void end();

 private:
  using Clock = std::chrono::steady_clock;

  void draw_bar(const Progress& progress);
  void print_line(const Progress& progress);

  bool terminal_;
  bool bar_shown_ = false;
  std::string log_name_;
  std::ofstream log_;
  Clock::time_point drawn_{}, logged_ = Clock::now();
};

}  // namespace diffeo::apps
