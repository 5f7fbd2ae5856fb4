include(CMakePackageConfigHelpers)
install(TARGETS diffeo EXPORT diffeo-targets)
foreach(room layers data flows samplers trainers)
  install(DIRECTORY ${room} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/diffeo FILES_MATCHING PATTERN "*.h")
endforeach()
install(EXPORT diffeo-targets NAMESPACE diffeo:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/diffeo)
configure_package_config_file(cmake/diffeo-config.cmake.in diffeo-config.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/diffeo)
write_basic_package_version_file(diffeo-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/diffeo-config.cmake ${PROJECT_BINARY_DIR}/diffeo-config-version.cmake
              cmake/FindLibTorch.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/diffeo)
