# oneDNN multiplies the float32 matrices of the conditioners. LibTorch's include folder carries headers of another version
# of it: the file that calls it is compiled without LibTorch, and any LibTorch symbols of the same names are hidden.
find_path(DIFFEO_ONEDNN_INCLUDE_DIR dnnl.hpp PATHS /usr/include NO_DEFAULT_PATH)
find_path(DIFFEO_ONEDNN_INCLUDE_DIR dnnl.hpp)
find_library(DIFFEO_ONEDNN_LIBRARY dnnl)
if(NOT DIFFEO_ONEDNN_INCLUDE_DIR OR NOT DIFFEO_ONEDNN_LIBRARY)
  message(FATAL_ERROR "oneDNN was not found: install libdnnl-dev (scripts/setup.sh does), or set "
                      "DIFFEO_ONEDNN_INCLUDE_DIR and DIFFEO_ONEDNN_LIBRARY")
endif()
mark_as_advanced(DIFFEO_ONEDNN_INCLUDE_DIR DIFFEO_ONEDNN_LIBRARY)
add_library(diffeo_onednn OBJECT ${PROJECT_SOURCE_DIR}/layers/nets/products.onednn.cpp)
target_compile_features(diffeo_onednn PRIVATE cxx_std_20)
target_include_directories(diffeo_onednn PRIVATE ${PROJECT_BINARY_DIR}/include ${DIFFEO_ONEDNN_INCLUDE_DIR})
target_sources(diffeo PRIVATE $<TARGET_OBJECTS:diffeo_onednn>)
target_link_libraries(diffeo PRIVATE ${DIFFEO_ONEDNN_LIBRARY})
