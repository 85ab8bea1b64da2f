# Install rules, and the package files that find_package(workflow) reads: one set in the build
# tree (point workflow_DIR or CMAKE_PREFIX_PATH at it), one in the install tree.

include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/workflow")

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/workflow-config.cmake.in"
  "${PROJECT_BINARY_DIR}/workflow-config.cmake"
  INSTALL_DESTINATION "${package_dir}"
  NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/workflow-config-version.cmake"
  COMPATIBILITY SameMinorVersion)

install(TARGETS workflow_static workflow_shared EXPORT workflow-targets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
export(EXPORT workflow-targets
  FILE "${PROJECT_BINARY_DIR}/workflow-targets.cmake" NAMESPACE workflow::)

# The build tree's package finds its dependencies the way the installed one does.
foreach(module FindCares FindCctz FindLiburing)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/${module}.cmake"
    "${PROJECT_BINARY_DIR}/${module}.cmake" COPYONLY)
endforeach()

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/workflow"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.h")
install(EXPORT workflow-targets
  DESTINATION "${package_dir}" NAMESPACE workflow::)
install(FILES
  "${PROJECT_BINARY_DIR}/workflow-config.cmake"
  "${PROJECT_BINARY_DIR}/workflow-config-version.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindCares.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindCctz.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindLiburing.cmake"
  DESTINATION "${package_dir}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE"
  DESTINATION "${CMAKE_INSTALL_DOCDIR}")
