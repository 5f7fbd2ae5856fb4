# Every public header compiles alone: one generated file each, in a target of its own that CI builds.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
  ${PROJECT_SOURCE_DIR}/layers/*.h ${PROJECT_SOURCE_DIR}/data/*.h ${PROJECT_SOURCE_DIR}/flows/*.h
  ${PROJECT_SOURCE_DIR}/samplers/*.h ${PROJECT_SOURCE_DIR}/trainers/*.h)
foreach(header IN LISTS headers)
  string(REPLACE "/" "_" name ${header})
  set(alone ${PROJECT_BINARY_DIR}/headers/${name}.cpp)
  if(NOT EXISTS ${alone})
    file(WRITE ${alone} "#include \"diffeo/${header}\"\n")
  endif()
  list(APPEND header_sources ${alone})
endforeach()
add_library(headers_alone OBJECT EXCLUDE_FROM_ALL ${header_sources})
target_link_libraries(headers_alone PRIVATE diffeo::diffeo)
target_include_directories(headers_alone PRIVATE ${HDF5_INCLUDE_DIRS})
