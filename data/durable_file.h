#pragma once

#include <string>

namespace diffeo {

/// A file on its way: written beside its place as `path.part`, and put there whole or not at all.
class DurableFile {
 public:
  /// Throws Error if `path` is something else than a regular file, or its folder is missing.
  explicit DurableFile(const std::string& path);
  /// Removes what was written unless it was committed.
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  const std::string& path() const { return path_; }            ///< as the user named it
  const std::string& temporary() const { return temporary_; }  ///< where to write
  /// Flushes the file to the disk, renames it to its place, and flushes the folder. The file must have been closed.
  void commit();

 private:
  std::string path_, place_, temporary_;
  bool committed_ = false;
};

}  // namespace diffeo
