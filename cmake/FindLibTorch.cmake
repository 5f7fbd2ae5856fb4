# Finds LibTorch without a CUDA toolkit: the wheel's own find_package(Torch) insists on one.
# Looks in LibTorch_ROOT, Torch_DIR, CMAKE_PREFIX_PATH and .deps/libtorch of the project.
# Defines LibTorch::cpu (libtorch_cpu, libc10) and, with DIFFEO_CUDA, LibTorch::cuda.
find_path(LibTorch_INCLUDE_DIR torch/csrc/api/include/torch/nn/module.h
  HINTS ${LibTorch_ROOT} ${Torch_DIR}/../../.. ${LibTorch_HINT} ${CMAKE_CURRENT_LIST_DIR}/../.deps/libtorch/torch
  PATH_SUFFIXES include torch/include)
find_library(LibTorch_CPU_LIBRARY torch_cpu HINTS ${LibTorch_INCLUDE_DIR}/../lib NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10 HINTS ${LibTorch_INCLUDE_DIR}/../lib NO_DEFAULT_PATH)
if(LibTorch_INCLUDE_DIR)
  file(STRINGS ${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h version_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^;0-9]" "" LibTorch_VERSION "${version_lines}")
  string(REPLACE ";" "." LibTorch_VERSION "${LibTorch_VERSION}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_INCLUDE_DIR
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "run scripts/setup.sh, or set LibTorch_ROOT to the folder that holds include/ and lib/")
if(LibTorch_FOUND)
  get_filename_component(LibTorch_LIBRARY_DIR ${LibTorch_CPU_LIBRARY} DIRECTORY)
  if(NOT TARGET LibTorch::cpu)
    add_library(LibTorch::c10 SHARED IMPORTED)
    set_target_properties(LibTorch::c10 PROPERTIES IMPORTED_LOCATION ${LibTorch_C10_LIBRARY})
    add_library(LibTorch::cpu SHARED IMPORTED)
    set_target_properties(LibTorch::cpu PROPERTIES
      IMPORTED_LOCATION ${LibTorch_CPU_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES "${LibTorch_INCLUDE_DIR};${LibTorch_INCLUDE_DIR}/torch/csrc/api/include"
      INTERFACE_LINK_LIBRARIES LibTorch::c10
      # The wheel's CUPTI and CUDA runtime lie where its own run path finds them, not the linker.
      INTERFACE_LINK_OPTIONS "-Wl,--unresolved-symbols=ignore-in-shared-libs")
  endif()
  if(DIFFEO_CUDA AND NOT TARGET LibTorch::cuda)
    find_library(LibTorch_CUDA_LIBRARY torch_cuda HINTS ${LibTorch_LIBRARY_DIR} NO_DEFAULT_PATH REQUIRED)
    find_library(LibTorch_C10_CUDA_LIBRARY c10_cuda HINTS ${LibTorch_LIBRARY_DIR} NO_DEFAULT_PATH REQUIRED)
    add_library(LibTorch::cuda INTERFACE IMPORTED)
    # Kept even where no symbol of it is used: loading it is what gives torch its CUDA operators.
    target_link_libraries(LibTorch::cuda INTERFACE LibTorch::cpu
      -Wl,--no-as-needed ${LibTorch_CUDA_LIBRARY} ${LibTorch_C10_CUDA_LIBRARY} -Wl,--as-needed)
  endif()
endif()
mark_as_advanced(LibTorch_INCLUDE_DIR LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY)
