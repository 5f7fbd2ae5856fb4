#pragma once

namespace diffeo {

/// For the start of a program's `main`: HDF5 1.10 can crash on a damaged file, which no library can turn into an
/// exception. After this call such a crash ends the program with one line on stderr that names file and object, and
/// with exit code 2. Other crashes end as without it.
void end_cleanly_on_damaged_files();

}  // namespace diffeo
