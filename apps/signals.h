#pragma once

#include <stdexcept>

namespace diffeo::apps {

/// Thrown where work was given up because of a signal; the program then ends with exit code 130.
struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted") {}
};

/// From now on the first SIGINT or SIGTERM only sets a flag, so that nothing half done is left; a second one kills. A
/// file that grows beyond `ulimit -f` is an error like a full disk.
void watch_signals();

/// Whether SIGINT or SIGTERM came.
bool interrupted();

/// Throws Interrupted if a signal came: for loops that write a file which shall not stay behind unfinished.
void stop_if_interrupted();

}  // namespace diffeo::apps
