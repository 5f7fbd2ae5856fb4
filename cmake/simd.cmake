# NAME.simd.cpp is compiled once for each instruction set that we choose among at run time, as namespace
# DIFFEO_CAPABILITY (layers/base/cpu_capability.h). Elsewhere than on x86-64 there is one, what the compiler does by itself.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(DIFFEO_CAPABILITIES baseline:-march=x86-64-v2 avx2:-march=x86-64-v3 avx512:-march=x86-64-v4)
else()
  set(DIFFEO_CAPABILITIES baseline:)
endif()

function(diffeo_simd source)
  get_filename_component(name ${source} NAME_WE)
  foreach(pair IN LISTS DIFFEO_CAPABILITIES)
    string(REPLACE ":" ";" pair ${pair})
    list(POP_FRONT pair capability)
    set(file ${PROJECT_BINARY_DIR}/simd/${name}_${capability}.cpp)
    set(text "#define DIFFEO_CAPABILITY ${capability}\n#include \"${source}\"\n")
    file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
    # No precompiled header: it was made for another instruction set. Errors and traps of the floating-point unit are
    # of no interest; NaN and infinities are.
    set_source_files_properties(${file} PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS
      "${pair};-O3;-ffp-contract=fast;-fno-math-errno;-fno-trapping-math;-Wno-psabi")
    target_sources(diffeo PRIVATE ${file})
  endforeach()
endfunction()
