# Install rules, and the package files: those that find_package(workflow) reads, one set in the build
# tree (point workflow_DIR or CMAKE_PREFIX_PATH at it), one in the install tree; and workflow.pc and
# workflow-store.pc in the install tree, for pkg-config.

include(CMakePackageConfigHelpers)

# Adds a library that a program linked with the static library needs to pc_requires, as the
# pkg-config module of that name; or to pc_libs, as an option of the linker, if there is no such
# module or it stands for another file.
function(workflow_needs_library module file)
  file(REAL_PATH "${file}" real_file)
  if(PKG_CONFIG_FOUND)
    pkg_check_modules(pc_${module} QUIET ${module})
    foreach(candidate IN LISTS pc_${module}_LINK_LIBRARIES)
      if(EXISTS "${candidate}")
        file(REAL_PATH "${candidate}" real_candidate)
        if(real_candidate STREQUAL real_file)
          set(pc_requires ${pc_requires} ${module} PARENT_SCOPE)
          return()
        endif()
      endif()
    endforeach()
  endif()
  get_filename_component(name "${file}" NAME_WE)
  string(REGEX REPLACE "^lib" "-l" option "${name}")
  get_filename_component(directory "${file}" DIRECTORY)
  if(NOT directory IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
    list(PREPEND option "-L${directory}")
  endif()
  set(pc_libs ${pc_libs} ${option} PARENT_SCOPE)
endfunction()

# Relative to where workflow.pc lies, so that the tree may be moved, and installed anywhere.
function(workflow_configure_pkg_config)
  find_package(PkgConfig QUIET)
  get_target_property(uriparser_file uriparser::uriparser LOCATION)
  set(pc_requires "")
  set(pc_libs "")
  workflow_needs_library(libcares "${CARES_LIBRARY}")
  workflow_needs_library(cctz "${CCTZ_LIBRARY}")
  workflow_needs_library(liburing "${LIBURING_LIBRARY}")
  workflow_needs_library(liburiparser "${uriparser_file}")
  workflow_needs_library(libssl "${OPENSSL_SSL_LIBRARY}")
  workflow_needs_library(libcrypto "${OPENSSL_CRYPTO_LIBRARY}")
  list(APPEND pc_libs ${CMAKE_THREAD_LIBS_INIT})
  list(JOIN pc_requires ", " pc_requires)
  list(JOIN pc_libs " " pc_libs)

  if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
    set(pc_prefix "${CMAKE_INSTALL_PREFIX}")
    set(pc_libdir "${CMAKE_INSTALL_LIBDIR}")
  else()
    file(RELATIVE_PATH up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
    string(REGEX REPLACE "/$" "" up "${up}")
    set(pc_prefix "\${pcfiledir}/${up}")
    set(pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  endif()
  set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
  if(IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
    set(pc_includedir "${CMAKE_INSTALL_INCLUDEDIR}")
  endif()
  set(pc_definitions "")
  if(WORKFLOW_STD_MUTEX)
    set(pc_definitions " -DWORKFLOW_STD_MUTEX")
  endif()
  configure_file("${PROJECT_SOURCE_DIR}/cmake/workflow.pc.in"
    "${PROJECT_BINARY_DIR}/workflow.pc" @ONLY)

  if(WORKFLOW_STORE)
    set(pc_requires "")
    set(pc_libs "")
    workflow_needs_library(sqlite3 "${SQLite3_LIBRARIES}")
    workflow_needs_library(hiredis "${HIREDIS_LIBRARY}")
    list(JOIN pc_requires ", " pc_requires)
    list(JOIN pc_libs " " pc_libs)
    configure_file("${PROJECT_SOURCE_DIR}/cmake/workflow-store.pc.in"
      "${PROJECT_BINARY_DIR}/workflow-store.pc" @ONLY)
  endif()
endfunction()
workflow_configure_pkg_config()

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

set(package_modules FindCares FindCctz FindLiburing)

# workflow_install_targets(<export> <target>...): into both packages, as the file <export>.cmake.
function(workflow_install_targets export)
  install(TARGETS ${ARGN} EXPORT ${export}
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  export(EXPORT ${export}
    FILE "${PROJECT_BINARY_DIR}/${export}.cmake" NAMESPACE workflow::)
  install(EXPORT ${export}
    DESTINATION "${package_dir}" NAMESPACE workflow::)
endfunction()

workflow_install_targets(workflow-targets workflow_static workflow_shared)
if(WORKFLOW_STORE)
  # A file of its own: only projects that ask for the store need its libraries.
  workflow_install_targets(workflow-store-targets workflow_store_static workflow_store_shared)
  list(APPEND package_modules FindHiredis)
endif()

# The build tree's package finds its dependencies the way the installed one does.
foreach(module IN LISTS package_modules)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/${module}.cmake"
    "${PROJECT_BINARY_DIR}/${module}.cmake" COPYONLY)
endforeach()

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/workflow"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.h")
list(TRANSFORM package_modules REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/cmake/\\1.cmake"
  OUTPUT_VARIABLE module_files)
install(FILES
  "${PROJECT_BINARY_DIR}/workflow-config.cmake"
  "${PROJECT_BINARY_DIR}/workflow-config-version.cmake"
  ${module_files}
  DESTINATION "${package_dir}")
install(FILES "${PROJECT_BINARY_DIR}/workflow.pc"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
if(WORKFLOW_STORE)
  install(FILES "${PROJECT_BINARY_DIR}/workflow-store.pc"
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endif()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE"
  DESTINATION "${CMAKE_INSTALL_DOCDIR}")
