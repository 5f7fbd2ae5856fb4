#pragma once

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

namespace diffeo::testing {

/// Prints `accept NAME VALUE THRESHOLD PASS|FAIL` for each claim and remembers whether all hold.
class Acceptance {
 public:
  void at_most(const std::string& name, double value, double threshold) {
    say(name, value, threshold, value <= threshold);
  }
  void at_least(const std::string& name, double value, double threshold) {
    say(name, value, threshold, value >= threshold);
  }
  int exit_code() const { return failed_ ? 1 : 0; }

 private:
  void say(const std::string& name, double value, double threshold, bool ok) {
    std::printf("accept %s %.6g %.6g %s\n", name.c_str(), value, threshold, ok ? "PASS" : "FAIL");
    std::fflush(stdout);
    failed_ |= !ok;
  }
  bool failed_ = false;
};

/// CPU seconds that this process has used, all of its threads together.
inline double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The exit code of a program that lacks its data: the suite counts it as skipped.
constexpr int skipped = 77;

/// The file `name`.h5 of the test data under DIFFEO_TEST_DATA. Ends the program as skipped where there are none.
inline std::string data_file(const std::string& name) {
  const char* folder = std::getenv("DIFFEO_TEST_DATA");
  if (folder == nullptr || *folder == 0) {
    std::printf("skipped: DIFFEO_TEST_DATA names no folder of test data\n");
    std::exit(skipped);
  }
  return std::string(folder) + "/h5/" + name + ".h5";
}

}  // namespace diffeo::testing
