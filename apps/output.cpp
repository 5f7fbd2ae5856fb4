#include "diffeo/apps/output.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>

#include "diffeo/layers/base/system_error.h"

namespace diffeo::apps {

void check_writable(const std::string& path) {
  std::error_code problem;
  check(!path.empty(), "the name of the output file is empty");
  check(!std::filesystem::is_directory(path, problem), path, ": cannot write there: it is a folder");
  const auto folder = std::filesystem::absolute(path).parent_path();
  check(std::filesystem::is_directory(folder, problem), path, ": cannot write there: there is no folder ",
        folder.string());
  check_system(access(folder.c_str(), W_OK) == 0, path, ": cannot write there");
}

Json read_json(const std::string& path) {
  std::ifstream stream(path);
  check_system(stream.good(), path, ": cannot open");
  try {
    return Json::parse(stream);
  } catch (const Json::exception& error) {
    throw Error(path + ": no valid JSON: " + error.what());
  }
}

void warn(const std::string& subcommand, const std::string& message) {
  std::cerr << "diffeo " << subcommand << ": warning: " << message << std::endl;
}

}  // namespace diffeo::apps
