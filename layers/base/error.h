#pragma once

#include <c10/util/StringUtil.h>

#include <stdexcept>

namespace diffeo {

/// A caller's mistake: wrong shape, wrong option, missing context, unreadable file. Always recoverable.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A mistake inside a spec: `place` is the path to it (`layers/0/map`), `problem` what is wrong there.
struct SpecError : Error {
  SpecError(const std::string& place, const std::string& problem)
      : Error(place.empty() ? problem : place + ": " + problem), place(place), problem(problem) {}
  std::string place, problem;
};

/// Throws an Error saying what was expected and what came, unless `ok`.
template <class... Parts>
void check(bool ok, const Parts&... parts) {
  if (!ok) throw Error(c10::str(parts...));
}

/// Runs `body`; a mistake found inside gets `place` put in front of its path.
template <class Body>
auto within(const std::string& place, Body&& body) {
  try {
    return body();
  } catch (const SpecError& error) {
    const auto path = error.place.empty() ? place : place.empty() ? error.place : place + "/" + error.place;
    throw SpecError(path, error.problem);
  } catch (const Error& error) {
    throw SpecError(place, error.what());
  }
}

}  // namespace diffeo
