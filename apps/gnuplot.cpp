#include "diffeo/apps/gnuplot.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "diffeo/apps/output.h"
#include "diffeo/apps/signals.h"
#include "diffeo/layers/base/system_error.h"

extern char** environ;

namespace diffeo::apps {
namespace {

/// A file that is gone when the program leaves the block.
struct TemporaryFile {
  std::string path;
  TemporaryFile() {
    auto pattern = (std::filesystem::temp_directory_path() / "diffeo-XXXXXX").string();
    const int descriptor = mkstemp(pattern.data());
    check_system(descriptor >= 0, pattern, ": cannot make a temporary file");
    close(descriptor);
    path = pattern;
  }
  ~TemporaryFile() { unlink(path.c_str()); }
};

std::string content(const std::string& path) {
  std::ifstream stream(path);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// What gnuplot complained about: its own marks and positions left out.
std::string complaint(const std::string& text) {
  const auto at = text.rfind("line ");
  const auto line = at == std::string::npos ? text : text.substr(at);
  return line.substr(0, line.find('\n'));
}

/// Runs gnuplot on a script file; what it prints goes to the file `log`. Its exit status.
int run_gnuplot(const std::string& script, const std::string& log) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_TRUNC, 0);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  std::string program = "gnuplot", path = script;
  char* const arguments[] = {program.data(), path.data(), nullptr};
  pid_t child = 0;
  const int problem = posix_spawnp(&child, "gnuplot", &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  check(problem != ENOENT,
        "plot needs the program gnuplot, which is not installed here; on Debian and Ubuntu: apt install gnuplot-nox");
  check(problem == 0, "cannot run gnuplot: ", std::strerror(problem));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  stop_if_interrupted();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/// A string in which gnuplot interprets nothing, for names of files.
std::string verbatim(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "''" : std::string(1, c);
  return result + '\'';
}

std::string terminal_for(const std::string& file, int width, int height) {
  const auto ending = std::filesystem::path(file).extension().string();
  const auto in_pixels = c10::str(" size ", width, ",", height);
  if (ending == ".png") return "pngcairo enhanced font 'Sans,11' linewidth 1.3" + in_pixels;
  if (ending == ".svg") return "svg enhanced font 'Sans,14' linewidth 1.3 background 'white'" + in_pixels;
  if (ending == ".pdf")
    return c10::str("pdfcairo enhanced font 'Sans,11' linewidth 1.3 size ", width / 72.0, "in,", height / 72.0, "in");
  throw Error(c10::str("-o: '", file, "' should end in .png, .svg or .pdf"));
}

}  // namespace

Gnuplot::Gnuplot(std::string file, int width, int height) : file_(std::move(file)), part_(file_ + ".part") {
  *this << "set terminal " + terminal_for(file_, width, height) << "set output " + verbatim(part_)
        << "set encoding utf8";
}

Gnuplot& Gnuplot::operator<<(const std::string& line) {
  script_ += line + '\n';
  return *this;
}

std::string Gnuplot::data(const Tensor& rows) {
  const auto table = (rows.dim() == 1 ? rows.unsqueeze(1) : rows).to(torch::kCPU, torch::kFloat64).contiguous();
  const auto name = "$data" + std::to_string(tables_++);
  script_ += name + " << END\n";
  const auto* value = table.data_ptr<double>();
  char text[32];
  for (int64_t i = 0; i < table.size(0); ++i, value += table.size(1)) {
    for (int64_t j = 0; j < table.size(1) && !std::isnan(value[0]); ++j) {
      std::snprintf(text, sizeof text, j ? " %.7g" : "%.7g", value[j]);
      script_ += text;
    }
    script_ += '\n';
  }
  script_ += "END\n";
  return name;
}

void Gnuplot::draw() {
  check_writable(file_);
  TemporaryFile script, log;
  std::ofstream(script.path) << script_ << "unset output\n";
  const int status = run_gnuplot(script.path, log.path);
  std::error_code problem;
  const auto size = std::filesystem::file_size(part_, problem);
  if (status != 0 || problem || size == 0) {
    std::filesystem::remove(part_, problem);
    throw std::runtime_error(
        c10::str(file_, ": gnuplot failed (exit status ", status, "): ", complaint(content(log.path))));
  }
  std::filesystem::rename(part_, file_, problem);
  check(!problem, file_, ": cannot write: ", problem.message());
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    // In enhanced mode these mean subscripts and the like; twice escaped they are themselves.
    if (c == '_' || c == '^' || c == '{' || c == '}' || c == '@' || c == '&' || c == '~') result += "\\\\";
    result += c;
  }
  return result + '"';
}

}  // namespace diffeo::apps
