#pragma once

#include <string>
#include <vector>

namespace diffeo::apps {

using Arguments = std::vector<std::string>;

/// The exit codes of the program.
enum Exit { fine = 0, failed = 1, bad_input = 2, interrupted_by_signal = 130 };

/// Each subcommand reads its arguments (those after its name), does its work and returns an exit code. It throws Error
/// for what the user can mend and Interrupted after a signal; main turns both into one line and an exit code.
int associate(const Arguments& arguments);
int convert(const Arguments& arguments);
int evaluate(const Arguments& arguments);
int fair(const Arguments& arguments);
int inspect(const Arguments& arguments);
int intervene(const Arguments& arguments);
int plot(const Arguments& arguments);
int sample(const Arguments& arguments);
int sample_target(const Arguments& arguments);
int toy(const Arguments& arguments);
int train(const Arguments& arguments);

}  // namespace diffeo::apps
