#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "diffeo/layers/base/error.h"

namespace diffeo::testing {

/// A folder of its own for a test, removed at the end.
class Scratch {
 public:
  Scratch() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    auto name = c10::str("diffeo_", ::getpid(), "_", test->test_suite_name(), "_", test->name());
    std::replace(name.begin(), name.end(), '/', '_');
    folder_ = std::filesystem::temp_directory_path() / name;
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~Scratch() { std::filesystem::remove_all(folder_); }
  Scratch(const Scratch&) = delete;

  std::string operator/(const std::string& name) const { return (folder_ / name).string(); }
  const std::filesystem::path& folder() const { return folder_; }
  /// Names of all files in it.
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::filesystem::path folder_;
};

/// The message of the Error that `body` throws; a failure and an empty text if it throws none.
template <class Body>
std::string message_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "expected an Error, got " << error.what();
    return {};
  }
  ADD_FAILURE() << "expected an Error";
  return {};
}

}  // namespace diffeo::testing

/// Expects `statement` to throw an Error whose message holds `part`.
#define EXPECT_ERROR(statement, part)                                                                    \
  do {                                                                                                   \
    const auto message = ::diffeo::testing::message_of([&] { statement; });                              \
    EXPECT_NE(message.find((part)), std::string::npos) << "expected '" << (part) << "' in: " << message; \
  } while (false)
