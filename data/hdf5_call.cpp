#include "diffeo/data/hdf5_call.h"

#include <signal.h>
#include <unistd.h>

#include <cstring>

#include "diffeo/data/damaged_files.h"

namespace diffeo::hdf5 {
namespace {

// For end_cleanly_on_damaged_files: whether this thread is inside of HDF5, and the place of the last call. Plain
// memory, since a signal handler reads it.
thread_local int calls_open = 0;
thread_local char last_place[1024] = "";

std::recursive_mutex& mutex() {
  static auto* const one = new std::recursive_mutex;  // outlives every static that may hold a handle
  return *one;
}

herr_t add_description(unsigned, const H5E_error2_t* error, void* descriptions) {
  if (error->desc && *error->desc) static_cast<std::vector<std::string>*>(descriptions)->push_back(error->desc);
  return 0;
}

}  // namespace

Session::Session() : lock_(mutex()) {
  ++calls_open;
  H5Eget_auto2(H5E_DEFAULT, &print_, &data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Session::~Session() {
  H5Eset_auto2(H5E_DEFAULT, print_, data_);
  --calls_open;
}

void note_place(const std::string& where) {
  where.copy(last_place, sizeof(last_place) - 1);
  last_place[std::min(where.size(), sizeof(last_place) - 1)] = '\0';
}

std::string reason() {
  std::vector<std::string> said;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, add_description, &said);
  if (said.empty()) return "HDF5 gives no reason";
  // `unable to open file: name = '...', errno = 13, error message = 'Permission denied', flags = 0`
  const std::string mark = "error message = '";
  if (const auto begin = said[0].find(mark); begin != std::string::npos) {
    const auto from = begin + mark.size();
    return said[0].substr(from, said[0].find('\'', from) - from);
  }
  for (const auto& text : said)
    if (text != said[0]) return said[0] + " (" + text + ")";
  return said[0];
}

Handle& Handle::operator=(Handle&& other) noexcept {
  std::swap(id_, other.id_);
  return *this;
}

Handle::~Handle() { close(); }

bool Handle::close() {
  const auto id = std::exchange(id_, -1);
  if (id < 0) return true;
  Session session;
  return H5Idec_ref(id) >= 0;
}

}  // namespace diffeo::hdf5

namespace diffeo {

void end_cleanly_on_damaged_files() {
  static char stack[1 << 16];  // deep recursion may have used up the usual one
  const stack_t other{.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof(stack)};
  ::sigaltstack(&other, nullptr);
  struct sigaction action {};
  action.sa_flags = SA_ONSTACK | static_cast<int>(SA_RESETHAND);
  action.sa_handler = [](int signal) {
    if (hdf5::calls_open == 0) {
      ::raise(signal);  // not HDF5's: as without us
      return;
    }
    // Only calls that are allowed in a signal handler.
    const auto say = [](const char* text, size_t size) { return ::write(2, text, size) >= 0; };
    const char start[] = "diffeo: ", end[] = ": HDF5 crashed while reading it; the file is damaged\n";
    if (say(start, sizeof(start) - 1) && say(hdf5::last_place, std::strlen(hdf5::last_place)))
      say(end, sizeof(end) - 1);
    ::_exit(2);
  };
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT}) ::sigaction(signal, &action, nullptr);
}

}  // namespace diffeo
