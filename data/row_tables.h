#pragma once

#include <memory>
#include <optional>

#include "diffeo/data/splits.h"
#include "diffeo/data/table_reader.h"

namespace diffeo {

/// Where the parts of a Batch come from: an object, and columns of it (empty: all).
struct RowSources {
  TableSource x;
  std::optional<TableSource> context, weight, label;
};

/// What the options say of the file. `x` is the object of the training rows.
RowSources find_sources(const DataOptions& options);

/// Points with their contexts, weights and labels, read together from one or several tables of the same length.
class RowTables {
 public:
  RowTables(const RowSources& sources, torch::Dtype dtype);

  int64_t rows() const { return rows_; }
  int64_t row_bytes() const { return row_bytes_; }
  int64_t block_rows() const { return block_rows_; }  ///< whole chunks, some megabytes
  int64_t blocks() const { return (rows_ + block_rows_ - 1) / block_rows_; }
  const std::vector<Column>& columns() const { return columns_; }
  const std::vector<Column>& context_columns() const { return context_columns_; }
  const std::vector<int64_t>& image_shape() const { return image_shape_; }  ///< of the points, as TableInfo has it
  const std::string& where() const { return tables_.front().reader->where(); }

  /// The rows of a block, unchecked.
  Batch read(int64_t block) const;
  /// Rows of a block, counted from its first, that hold NaN or infinite values. Throws Error naming row and column for
  /// negative weights, and for such rows too unless `allow_missing`.
  std::vector<int64_t> missing_in(const Batch& rows, int64_t block, bool allow_missing) const;

 private:
  /// Some columns of a table go to a member of the batch.
  struct Use {
    Tensor Batch::*member;
    int64_t first, width;
  };
  struct Opened {
    std::unique_ptr<TableReader> reader;
    torch::Dtype dtype;
    std::vector<Use> uses;
  };

  torch::Dtype dtype_;
  std::vector<Opened> tables_;
  std::vector<Column> columns_, context_columns_;
  std::vector<int64_t> image_shape_;
  int64_t rows_ = 0, row_bytes_ = 0, block_rows_ = 1;
};

}  // namespace diffeo
