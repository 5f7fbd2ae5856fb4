# libcsv and libzip, with which tables are converted. Neither brings a CMake package that can be relied on.
find_path(DIFFEO_CSV_INCLUDE_DIR csv.h)
find_library(DIFFEO_CSV_LIBRARY csv)
find_path(DIFFEO_ZIP_INCLUDE_DIR zip.h)
find_library(DIFFEO_ZIP_LIBRARY zip)
foreach(library CSV ZIP)
  string(TOLOWER ${library} name)
  if(NOT DIFFEO_${library}_INCLUDE_DIR OR NOT DIFFEO_${library}_LIBRARY)
    message(FATAL_ERROR "lib${name} was not found: install lib${name}-dev (scripts/setup.sh does), or set "
                        "DIFFEO_${library}_INCLUDE_DIR and DIFFEO_${library}_LIBRARY")
  endif()
  mark_as_advanced(DIFFEO_${library}_INCLUDE_DIR DIFFEO_${library}_LIBRARY)
endforeach()
