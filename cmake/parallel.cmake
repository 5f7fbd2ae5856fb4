# The one source that starts LibTorch's threads needs OpenMP; see layers/base/parallel.h. The runtime is the one that
# LibTorch brings, or the system's of the same name.
find_package(OpenMP REQUIRED COMPONENTS CXX)
set_source_files_properties(${PROJECT_SOURCE_DIR}/layers/base/parallel.cpp PROPERTIES
  COMPILE_OPTIONS "${OpenMP_CXX_FLAGS}" SKIP_PRECOMPILE_HEADERS ON)
target_link_options(diffeo PRIVATE ${OpenMP_CXX_FLAGS})
