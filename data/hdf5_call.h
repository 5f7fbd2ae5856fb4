#pragma once

// How HDF5's C functions are called: under one lock, without HDF5's own printing, with its words for what went wrong.
// For the sources hdf5*.cpp only, which alone see HDF5's own header.

#define H5_USE_110_API
#include <c10/util/StringUtil.h>
#include <hdf5.h>

#include <mutex>

#include "diffeo/data/hdf5.h"

namespace diffeo::hdf5 {

static_assert(std::is_same_v<hid_t, int64_t>, "HDF5 1.10 or later is required");

/// Serialises calls and keeps HDF5 from printing; both as they were before when it goes out of scope.
class Session {
 public:
  Session();
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  std::lock_guard<std::recursive_mutex> lock_;
  H5E_auto2_t print_ = nullptr;
  void* data_ = nullptr;
};

/// HDF5's own words for what went wrong last: the innermost description, and the one around it.
std::string reason();

/// Notes the place of a call, for end_cleanly_on_damaged_files.
void note_place(const std::string& where);

/// Makes one call; a negative result becomes an Error: `where` (file and object), `what` failed, and HDF5's reason.
template <class Call>
auto call(const std::string& where, const char* what, Call&& body) {
  Session session;
  note_place(where);
  const auto result = body();
  if (result < 0) throw Error(c10::str(where, ": ", what, ": ", reason()));
  return result;
}

/// The same for calls that give a new identifier.
template <class Call>
Handle made(const std::string& where, const char* what, Call&& body) {
  return Handle(call(where, what, std::forward<Call>(body)));
}

}  // namespace diffeo::hdf5
