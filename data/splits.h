#pragma once

#include <optional>

#include "diffeo/data/dataset.h"
#include "diffeo/data/table.h"

namespace diffeo {

/// Which rows and columns of an HDF5 file a run reads.
struct DataOptions {
  std::string file;
  std::string x;                             ///< object of the points; empty: `/x`, `/train/x` or the only table
  std::vector<std::string> columns;          ///< of x; empty: all that context, weight and label do not name
  std::string context;                       ///< object, or comma-separated columns of x's object; empty: none
  std::string weight;                        ///< the same, one column, not negative
  std::string label;                         ///< the same
  std::vector<double> split{0.8, 0.1, 0.1};  ///< fractions for train, valid and test where the file stores no splits
  uint64_t split_seed = 0;
  int64_t memory_mb = 4096;    ///< tables larger than this are streamed
  bool allow_missing = false;  ///< drop rows with NaN or infinite values instead of refusing them

  static constexpr auto fields() {
    using O = DataOptions;
    return std::tuple{
        required("file", &O::file, "HDF5 file"),
        optional("x", &O::x, "object of the points; empty: /train/x, /x, or the only table of the file"),
        optional("columns", &O::columns, "columns of x by name, index or range; empty: all"),
        optional("context", &O::context, "object of the context, or columns of x separated by commas"),
        optional("weight", &O::weight, "object of the row weights, or a column of x"),
        optional("label", &O::label, "object of the labels, or columns of x separated by commas"),
        optional("split", &O::split, "fractions of rows for train, valid, test where the file has none stored"),
        optional("split_seed", &O::split_seed, "seed of the split by fractions"),
        optional("memory_mb", &O::memory_mb, "tables larger than this many MiB are streamed by chunks"),
        optional("allow_missing", &O::allow_missing, "drop rows with missing or infinite values, with a warning")};
  }
};

/// The rows for training, choosing and testing a model. Stored splits are `/train/x`, `/valid/x`, `/test/x` (siblings
/// of x alike); else the rows of x are split by fractions. `valid` and `test` may be null.
struct Splits {
  DatasetPtr train, valid, test;
  std::vector<Column> columns, context_columns;
  std::vector<int64_t> image_shape;   ///< of rows that are images, as stored (image_rows.h); empty for others
  std::vector<std::string> warnings;  ///< constant columns, discrete columns, dropped rows: one line each
};

/// Throws Error that names file, object, row and column.
Splits load_splits(const DataOptions& options, torch::Dtype dtype);

/// Mean, standard deviation, extremes and quantiles of each column of x, (D) in float64, in one pass over a dataset
/// (the quantiles from a sample of at most 100 000 rows).
struct ColumnStatistics {
  Tensor mean, deviation, lower, upper, quantile25, median, quantile75;
};
ColumnStatistics column_statistics(const Dataset& data);

}  // namespace diffeo
