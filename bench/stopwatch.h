#pragma once

#include <chrono>
#include <ctime>

namespace diffeo::bench {

/// Milliseconds of the process's CPU time and of wall time.
struct Times {
  double cpu, wall;
};

inline Times now() {
  timespec cpu{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  const auto wall = std::chrono::steady_clock::now().time_since_epoch();
  return {static_cast<double>(cpu.tv_sec) * 1e3 + static_cast<double>(cpu.tv_nsec) * 1e-6,
          std::chrono::duration<double, std::milli>(wall).count()};
}

inline Times since(const Times& start) {
  const auto end = now();
  return {end.cpu - start.cpu, end.wall - start.wall};
}

}  // namespace diffeo::bench
