#pragma once

#include "diffeo/data/hdf5.h"
#include "diffeo/data/table.h"

namespace diffeo {

/// Names and units for the `count` columns of a plain dataset, from its attributes or from datasets beside it.
std::vector<Column> columns_of(const hdf5::Object& dataset, const hdf5::Object& root, int64_t count, bool discrete);

/// Gives `columns` the units that attributes of `object` state for them.
void add_units(const hdf5::Object& object, std::vector<Column>& columns);

/// Column names that pandas notes, pickled, for the field `field` of a table it wrote; empty if it noted none.
std::vector<std::string> pandas_names(const hdf5::Object& dataset, const std::string& field);

/// Indices of the columns that `wanted` names, in its order; all for an empty list.
/// Throws Error beginning with `where` for what is unknown (with the nearest name), ambiguous or chosen twice.
std::vector<int64_t> choose_columns(const std::string& where, const std::vector<Column>& columns,
                                    const std::vector<std::string>& wanted);

/// The last part of a path.
std::string last_part(const std::string& path);

/// "a, b, c, ... (17 more)"
std::string listed(const std::vector<std::string>& names, size_t most = 20);

}  // namespace diffeo
