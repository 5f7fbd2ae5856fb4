#include "cli/program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

extern char** environ;

namespace diffeo::testing {
namespace {

std::string content(const std::filesystem::path& path) {
  std::ifstream stream(path);
  return {std::istreambuf_iterator<char>(stream), {}};
}

pid_t spawn(const std::filesystem::path& folder, const std::string& arguments, const std::string& output,
            const std::string& errors) {
  std::istringstream stream(arguments);
  std::vector<std::string> words{DIFFEO_PROGRAM};
  for (std::string word; stream >> word;) words.push_back(word);
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t process = 0;
  const int problem = posix_spawn(&process, DIFFEO_PROGRAM, &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (problem != 0) throw std::runtime_error("cannot run " DIFFEO_PROGRAM);
  return process;
}

}  // namespace

void PrintTo(const Outcome& outcome, std::ostream* out) {
  *out << "exit code " << outcome.code << "\n--- output\n" << outcome.output << "--- errors\n" << outcome.errors;
}

Folder::Folder() {
  auto pattern = (std::filesystem::temp_directory_path() / "diffeo-cli-XXXXXX").string();
  if (!mkdtemp(pattern.data())) throw std::runtime_error("cannot make a folder " + pattern);
  root_ = pattern;
  std::filesystem::create_directory(root_ / "work");
  root_ /= "work";
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(root_.parent_path(), ignored);
}

void Folder::write(const std::string& name, const std::string& text) const { std::ofstream(root_ / name) << text; }

std::vector<std::string> Folder::files() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(root_))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

Outcome Folder::run(const std::string& arguments) const {
  // Beside the folder: what the program itself writes is then all that is in it.
  const auto output = root_.parent_path() / "output", errors = root_.parent_path() / "errors";
  Outcome outcome;
  outcome.code = wait_for(spawn(root_, arguments, output, errors));
  outcome.output = content(output);
  outcome.errors = content(errors);
  return outcome;
}

pid_t Folder::start(const std::string& arguments) const { return spawn(root_, arguments, "/dev/null", "/dev/null"); }

int wait_for(pid_t process) {
  int status = 0;
  while (waitpid(process, &status, 0) < 0)
    if (errno != EINTR) throw std::runtime_error("cannot wait for the program");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

size_t lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

}  // namespace diffeo::testing
