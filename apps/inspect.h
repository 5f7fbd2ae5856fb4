#pragma once

#include <string>

namespace diffeo::apps {

// The parts of `diffeo inspect`. Each prints to standard output and throws Error for what it cannot read.

/// Tables of an HDF5 file: rows, columns, ranges, missing values, histograms. Only `object` where it is not empty.
/// Looks at the first rows of a huge table and shows the first columns of a wide one, unless `all`.
void describe_data(const std::string& file, const std::string& object, bool all);
/// A model file: layers, parameters, columns, where it comes from, how training went.
void describe_model(const std::string& file);
/// Every registered layer, map and base distribution in one line each; or, with a name, its options and examples.
void describe_registered(const std::string& name);
/// The same for all of them at length, as a page of documentation in Markdown.
void document_registered();
/// The named recipes and their options.
void describe_recipes();
/// The objectives that train a flow, each with its options.
void describe_objectives();
/// The targets that samplers know, each with its density, its options and its constant.
void describe_targets();

}  // namespace diffeo::apps
