#pragma once

#include <cstdio>
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

}  // namespace diffeo::testing
