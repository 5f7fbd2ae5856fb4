#pragma once

namespace diffeo {

/// Tells the C library to keep memory that is freed for what is allocated next, instead of giving it back to the
/// system. A training step frees and takes the same buffers again and again, and pages fresh from the system cost as
/// much as the arithmetic on them. It holds for the whole process and for good, so programs call it, not the library.
/// Does nothing where the C library is not glibc.
void keep_freed_memory();

}  // namespace diffeo
