#pragma once

#include <string>

namespace diffeo::apps {

/// The parts of `diffeo inspect`. Each prints to standard output and throws Error for what it cannot read.

/// Every registered layer, map and base distribution in one line each; or, with a name, its options and examples.
void describe_registered(const std::string& name);
/// The named recipes and their options.
void describe_recipes();

}  // namespace diffeo::apps
