#pragma once

#include <string>
#include <vector>

#include "diffeo/data/table.h"

namespace diffeo {

/// How a text table is read and written.
struct CsvOptions {
  std::string separator = "auto";        ///< auto, comma, semicolon, tab or space (any run of blanks)
  std::string header = "auto";           ///< yes, no, or auto: the first line is one if it holds a word
  bool missing = false;                  ///< read empty fields, NA, nan and ? as NaN instead of refusing them
  std::vector<std::string> categorical;  ///< columns of words to number, by name or index; "all": wherever words are
  std::vector<std::string> columns;      ///< to keep, in this order; empty: all
};

/// Reads a text table into the (N, D) dataset `object` of a new HDF5 file, in constant memory. Words of a categorical
/// column become their places in the sorted list of its words, which is kept in the attribute `categories_json`.
/// Lines that begin with # are comments; a comment before the first row may be the header.
/// Throws Error naming file, line and column. Returns the number of rows.
int64_t csv_to_table(const std::string& csv, const std::string& file, const std::string& object,
                     torch::Dtype dtype = torch::kFloat64, const CsvOptions& options = {});

/// Writes a table as text: a line of column names, then numbers with as many digits as it takes to read the same
/// numbers back. Returns the number of rows.
int64_t table_to_csv(const TableSource& table, const std::string& csv, const CsvOptions& options = {});

}  // namespace diffeo
