#pragma once

#include <optional>

#include "diffeo/data/dataset.h"
#include "diffeo/data/table.h"

namespace diffeo {

/// All rows of a table, with those of a table of contexts beside them, in the order of the file and in constant memory.
/// Throws Error as read_table does, and if the two have not the same number of rows.
std::unique_ptr<BatchStream> table_stream(const TableSource& x, const std::optional<TableSource>& context,
                                          int64_t batch_size, torch::Dtype dtype);

}  // namespace diffeo
