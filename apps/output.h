#pragma once

#include <string>

#include "diffeo/layers/base/options.h"

namespace diffeo::apps {

/// Throws Error if a file cannot be made at `path`: before hours of work, not after.
void check_writable(const std::string& path);

/// Throws Error naming file and place if it is no JSON.
Json read_json(const std::string& path);

/// One line on standard error.
void warn(const std::string& subcommand, const std::string& message);

}  // namespace diffeo::apps
