#include "diffeo/apps/signals.h"

#include <csignal>

namespace diffeo::apps {
namespace {

volatile std::sig_atomic_t signal_came = 0;

void note_signal(int) { signal_came = 1; }

}  // namespace

void watch_signals() {
  struct sigaction action = {};
  action.sa_handler = note_signal;
  // SA_RESETHAND: who asks twice is not kept waiting. SA_RESTART: a write to disk is not cut short.
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // A limit on the size of files is then an error of the write, with a message, not the end of the program.
  std::signal(SIGXFSZ, SIG_IGN);
}

bool interrupted() { return signal_came != 0; }

void stop_if_interrupted() {
  if (interrupted()) throw Interrupted();
}

}  // namespace diffeo::apps
