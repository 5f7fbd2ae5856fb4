#include "diffeo/data/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "diffeo/layers/base/system_error.h"

namespace diffeo {
namespace {

void flush_to_disk(const std::string& path, int flags, const std::string& shown_as) {
  const int file = ::open(path.c_str(), flags | O_CLOEXEC);
  check_system(file >= 0, shown_as, ": cannot write the file");
  const bool flushed = ::fsync(file) == 0 || errno == EINVAL;  // some file systems cannot flush folders
  const int problem = errno;
  ::close(file);
  check(flushed, shown_as, ": cannot write the file: ", std::strerror(problem));
}

}  // namespace

DurableFile::DurableFile(const std::string& path) : path_(path), place_(path) {
  namespace fs = std::filesystem;
  check(!path.empty(), "a file to write needs a name");
  std::error_code problem;
  // Through a link, the file that it leads to is replaced, not the link.
  if (fs::is_symlink(place_, problem)) place_ = fs::weakly_canonical(place_, problem).string();
  const auto status = fs::status(place_, problem);
  check(!fs::exists(status) || fs::is_regular_file(status), path, ": cannot write the file: it is ",
        fs::is_directory(status) ? "a folder" : "not a regular file");
  const auto folder = fs::path(place_).parent_path();
  check(folder.empty() || fs::is_directory(folder, problem), path, ": cannot write the file: there is no folder ",
        folder.string());
  temporary_ = place_ + ".part";
}

DurableFile::~DurableFile() {
  if (!committed_) ::unlink(temporary_.c_str());
}

void DurableFile::commit() {
  flush_to_disk(temporary_, O_RDONLY, path_);
  check_system(::rename(temporary_.c_str(), place_.c_str()) == 0, path_, ": cannot rename ", temporary_, " to it");
  committed_ = true;
  const auto folder = std::filesystem::path(place_).parent_path().string();
  flush_to_disk(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY, path_);
}

}  // namespace diffeo
