#pragma once

#include <sys/types.h>

#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

namespace diffeo::testing {

/// What a run of the program diffeo gave.
struct Outcome {
  int code = 0;  ///< exit code, or 128 + the signal that ended it
  std::string output, errors;
};
void PrintTo(const Outcome& outcome, std::ostream* out);

/// A folder that is gone after the test. Programs are run inside of it.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path(const std::string& name) const { return (root_ / name).string(); }
  void write(const std::string& name, const std::string& text) const;
  std::vector<std::string> files() const;  ///< names, sorted

  /// Runs `diffeo ARGUMENTS` (separated by spaces) with one thread and waits for its end.
  Outcome run(const std::string& arguments) const;
  /// Starts it in the background; its output goes nowhere.
  pid_t start(const std::string& arguments) const;

 private:
  std::filesystem::path root_;
};

/// Waits for the end of a program: its exit code, or 128 + the signal that ended it.
int wait_for(pid_t process);

size_t lines(const std::string& text);

}  // namespace diffeo::testing
