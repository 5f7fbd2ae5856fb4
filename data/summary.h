#pragma once

#include "diffeo/data/table.h"

namespace diffeo {

/// What the values of one column look like.
struct ColumnSummary {
  int64_t missing = 0;  ///< NaN or infinite values
  /// Of the finite values; NaN where there are none.
  double smallest = 0, largest = 0, mean = 0, deviation = 0;
  bool whole = true;  ///< every finite value is an integer
  Tensor sample;      ///< (at most 20 000), finite values from all over the rows read
};

/// Reads rows [0, rows) of a table, all where `rows` is negative, in pieces: constant memory. One summary a column.
/// Throws Error as read_table does, except that missing values are counted.
std::vector<ColumnSummary> summarize(const TableSource& source, int64_t rows = -1);

}  // namespace diffeo
