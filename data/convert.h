#pragma once

#include "diffeo/data/table.h"

namespace diffeo {

/// How `convert_table` reads and writes.
struct ConvertOptions {
  std::string object;
  std::vector<std::string> columns;
  std::string separator = "auto";
  std::string header = "auto";
  bool missing = false;
  std::vector<std::string> categorical;
  std::string dtype = "float64";

  static constexpr auto fields() {
    using O = ConvertOptions;
    return std::tuple{
        optional("object", &O::object,
                 "object of the HDF5 file to write (empty: /x) or to read (empty: its only table)"),
        optional("columns", &O::columns, "columns to keep by name, index or range; empty: all"),
        optional("separator", &O::separator, "of a text table: auto, comma, semicolon, tab or space"),
        optional("header", &O::header, "whether a text table begins with column names: auto, yes or no"),
        optional("missing", &O::missing, "read missing fields of a text table as NaN instead of refusing them"),
        optional("categorical", &O::categorical, "columns of words to number, or all"),
        optional("dtype", &O::dtype, "of the numbers of a text table in HDF5: float32 or float64")};
  }
};

/// Converts a table between HDF5 (.h5, .hdf5, .hdf, .he5, .nxs), text (.csv, .tsv, .txt, .dat, .data) and NumPy (.npy,
/// .npz), one of the two being HDF5; the endings of the names say what is what. Between HDF5 and .npz all arrays or
/// tables are converted if `object` is empty. Says in one line what was written.
/// Throws Error naming file and place; then nothing is written.
std::string convert_table(const std::string& from, const std::string& to, const ConvertOptions& options = {});

}  // namespace diffeo
