#pragma once

#include "diffeo/data/hdf5.h"
#include "diffeo/data/table.h"

namespace diffeo {

/// An open table that can be read in pieces.
class TableReader {
 public:
  /// Throws Error as read_table does.
  explicit TableReader(const TableSource& source);
  /// The table that `object` is, `root` being the root group of its file.
  TableReader(const hdf5::Object& root, hdf5::Object object, const std::vector<std::string>& wanted = {});

  const std::string& where() const { return where_; }  ///< file:/object
  const std::string& object() const { return object_; }
  const std::vector<Column>& columns() const { return columns_; }  ///< those chosen
  const std::vector<Column>& all_columns() const { return all_columns_; }
  int64_t rows() const { return rows_; }
  int64_t chunk_rows() const { return chunk_rows_; }  ///< pieces of a multiple of this are read fastest
  const std::vector<int64_t>& event_shape() const { return event_shape_; }
  const std::vector<int64_t>& image_shape() const { return image_shape_; }  ///< as TableInfo has it
  TableInfo info() const;
  bool flat() const { return parts_.size() == 1 && parts_[0].shape.size() == 1 && all_columns_.size() == 1; }  ///< (N)

  /// Rows [begin, end), (n, D), as float32, float64 or (of discrete columns) int64.
  Tensor read(int64_t begin, int64_t end, torch::Dtype dtype) const;
  /// Throws Error naming row and column of the first value that is NaN or infinite. `values` are rows from `begin` on.
  void check_finite(const Tensor& values, int64_t begin) const;

 private:
  /// One number, or array of them, in the elements of a dataset: the next `width` columns.
  struct Leaf {
    int64_t index = 0;  ///< among the leaves of the dataset's type
    int64_t first = 0, width = 1;
    bool bits = false;  ///< a bit field, which HDF5 does not turn into a number itself
  };
  /// A dataset that holds some of the columns.
  struct Part {
    hdf5::Object dataset;
    hdf5::Shape shape;
    bool compound = false;
    bool block_columns = false;  ///< (N, D) of single numbers: columns can be read without their neighbours
    int64_t leaves_in_type = 1;
    std::vector<Leaf> leaves;
    int64_t width = 0;
    int64_t first = 0;            ///< number of its first column among those of the table
    std::vector<int64_t> chosen;  ///< its columns that are read, in the order of the file
  };

  void open(const hdf5::Object& root, hdf5::Object object, const std::vector<std::string>& wanted);
  void find_image_shape(const hdf5::Object& root);
  void add_dataset(const hdf5::Object& root, hdf5::Object dataset);
  void add_group(const hdf5::Object& root, const hdf5::Object& group, const std::vector<std::string>& wanted);
  void choose(const std::vector<std::string>& wanted);
  Tensor read_part(const Part& part, int64_t begin, int64_t end, torch::Dtype dtype) const;
  Tensor read_numbers(const Part& part, hdf5::Selection selection, int64_t width, bool bits, torch::Dtype dtype) const;

  std::string file_, object_, where_, kind_, dtype_;
  std::vector<Part> parts_;
  std::vector<Column> all_columns_, columns_;
  std::vector<int64_t> event_shape_, image_shape_;
  std::vector<int64_t> order_;  ///< where each chosen column stands among those read
  int64_t rows_ = 0, chunk_rows_ = 1;
};

/// What a walk through a file finds.
struct FoundTables {
  std::vector<TableInfo> tables;
  std::vector<std::string> unreadable;  ///< why an object cannot be read, for each one
};
FoundTables find_tables(const hdf5::Object& root);

}  // namespace diffeo
