# Compile once: ccache where it is installed, told that our precompiled headers are safe to share between build trees.
find_program(DIFFEO_CCACHE ccache)
if(DIFFEO_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1 CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${DIFFEO_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endif()

# Says in a file beside a target's precompiled header what is in it: ccache takes its word for it. The header itself
# differs from build to build, though it means the same, and nothing would ever be found.
function(diffeo_share_pch target)
  get_target_property(headers ${target} PRECOMPILE_HEADERS)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx.gch.sum
    "${headers} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${type}} ${DIFFEO_SANITIZE} "
    "torch ${LibTorch_VERSION} json ${nlohmann_json_VERSION} gtest ${GTest_VERSION}\n")
endfunction()
