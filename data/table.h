#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "diffeo/layers/base/options.h"

namespace diffeo {

using torch::Tensor;

/// What is known of one column of a table.
struct Column {
  std::string name;       ///< never empty: "x0", "x1", ... where the file gives no name
  std::string unit;       ///< from an attribute `units` or `unit`, else empty
  bool discrete = false;  ///< stored as integers, booleans or an enumeration

  bool operator==(const Column&) const = default;
};

/// Where a table lies in an HDF5 file.
struct TableSource {
  std::string file;
  /// Path of a 1-D or 2-D numeric dataset, of a compound dataset (its numeric fields are the columns), or of a group
  /// of 1-D datasets of one length. Empty: the only object of the file that can be read as a table.
  std::string object;
  /// Columns in the order wanted: names, or indices ("3", "-1"), or ranges of them ("0:5"). Empty: all.
  std::vector<std::string> columns;
};

/// Rows of numbers with named columns.
struct Table {
  Tensor values;  ///< (N, D); events of more dimensions (images) are flattened to D
  std::vector<Column> columns;
  std::vector<int64_t> event_shape;  ///< shape of one row in the file, {D} for a plain table
};

/// What is in a table, without reading its rows.
struct TableInfo {
  std::string object, kind;  ///< kind: "dataset", "compound" or "group of columns"
  int64_t rows = 0;
  std::vector<Column> columns;
  std::string dtype;  ///< as stored: "float32", "int64 (big endian)", ...
  /// Of rows that are images, as stored: the attribute `image_shape` of the dataset, its group or the file, or the
  /// shape of a row of several dimensions. Empty where there is neither, or where only some columns are read.
  std::vector<int64_t> image_shape;
};

/// Reads rows [begin, end) (all by default) of a table as `dtype`: float32, float64 or, where all columns are discrete,
/// int64. Integers that the dtype does not hold exactly (beyond 2^24 and 2^53) are rounded to the nearest number that
/// it does; load_splits warns of columns that have some. Throws Error that names file, object, row, column and what can
/// be done: a missing file or object, strings, unknown filters, truncated files, wrong shapes, and (with `finite`) NaN
/// or infinite values.
Table read_table(const TableSource& source, torch::Dtype dtype = torch::kFloat32, int64_t begin = 0, int64_t end = -1,
                 bool finite = true);

/// Throws Error as read_table does, but reads no rows.
TableInfo table_info(const TableSource& source);

/// Every object of the file that read_table could read, in file order.
std::vector<TableInfo> tables_in(const std::string& file);

/// Writes a table in pieces, in constant memory: to a temporary file beside `file`, flushed and renamed by `finish`.
/// Nothing is left behind if it is destroyed before that.
class TableWriter {
 public:
  /// Several objects may be written to one file: call `begin` for each.
  explicit TableWriter(std::string file);
  ~TableWriter();
  TableWriter(const TableWriter&) = delete;
  TableWriter& operator=(const TableWriter&) = delete;

  /// Starts a (0, D) dataset `object` (groups on the way are made), or (0) if `columns` has one column and `flat`.
  void begin(const std::string& object, const std::vector<Column>& columns, torch::Dtype dtype, bool flat = false);
  /// Appends rows (n, D), or (n) if flat, to the dataset begun last.
  void append(const Tensor& rows);
  /// Sets an attribute on an object ("/" for the file): a string, a number, or a list of strings or integers.
  void attribute(const std::string& object, const std::string& name, const Json& value);
  /// Flushes to disk and renames. Throws Error if the disk is full.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace diffeo
