#pragma once

#include <istream>
#include <memory>
#include <string>
#include <vector>

#include "diffeo/data/table.h"

namespace diffeo {

/// One array of a .npy file (versions 1 to 3), read in pieces of rows.
class NumpyArray {
 public:
  /// `bytes` is the length of `file`; `where` names it in errors. Throws Error for what is no array of numbers or
  /// truth values (structured and object arrays), and where the file is shorter than its header says.
  NumpyArray(std::unique_ptr<std::istream> file, int64_t bytes, std::string where);
  explicit NumpyArray(const std::string& path);

  const std::vector<int64_t>& shape() const { return shape_; }
  torch::Dtype dtype() const { return dtype_; }
  /// Entries [begin, end) of the first dimension, in the array's own dtype: (end - begin, *rest).
  Tensor read(int64_t begin, int64_t end);
  Tensor read() { return read(0, shape_.at(0)); }

 private:
  void parse_header(int64_t bytes);

  std::unique_ptr<std::istream> file_;
  std::string where_;
  std::vector<int64_t> shape_;
  torch::Dtype dtype_ = torch::kFloat64;
  bool fortran_ = false, swapped_ = false;
  int64_t start_ = 0;  ///< of the values in the file
};

/// Writes an array of numbers in version 1 of the format, in pieces along the first dimension.
class NumpyWriter {
 public:
  NumpyWriter(const std::string& path, torch::Dtype dtype, const std::vector<int64_t>& shape);
  ~NumpyWriter();
  void append(const Tensor& rows);
  /// Throws Error unless as many values came as the shape says, or if the disk is full.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Names and arrays of a .npz file, stored or deflated.
class NumpyArchive {
 public:
  explicit NumpyArchive(const std::string& path);
  ~NumpyArchive();
  const std::vector<std::string>& names() const { return names_; }  ///< without .npy, in order of the file
  NumpyArray open(const std::string& name) const;                   ///< unpacked in memory

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::vector<std::string> names_;
};

/// Packs .npy files, deflated, as `name.npy` each. Written whole or not at all.
void write_archive(const std::string& path, const std::vector<std::pair<std::string, std::string>>& names_and_files);

}  // namespace diffeo
