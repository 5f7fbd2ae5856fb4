#pragma once

#include <cerrno>
#include <cstring>

#include "diffeo/layers/base/error.h"

namespace diffeo {

/// Throws an Error that ends in what the operating system says of its last call, unless `ok`. As one of the parts,
/// strerror(errno) might be read before the call in `ok` is made.
template <class... Parts>
void check_system(bool ok, const Parts&... parts) {
  const int number = errno;
  if (!ok) throw Error(c10::str(parts..., ": ", std::strerror(number)));
}

}  // namespace diffeo
