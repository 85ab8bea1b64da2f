# Finds liburing.
#
#   Liburing_FOUND, Liburing_VERSION
#   Liburing::liburing   its library and include path
#
# Installed beside the package files: programs that link the static library need it too.

find_path(LIBURING_INCLUDE_DIR liburing.h)
find_library(LIBURING_LIBRARY uring)
mark_as_advanced(LIBURING_INCLUDE_DIR LIBURING_LIBRARY)

# Its headers name a version only since 2.4; the functions are what counts.
find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
  pkg_check_modules(pc_liburing QUIET liburing)
  set(Liburing_VERSION "${pc_liburing_VERSION}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Liburing
  REQUIRED_VARS LIBURING_LIBRARY LIBURING_INCLUDE_DIR
  VERSION_VAR Liburing_VERSION
  REASON_FAILURE_MESSAGE "Debian: apt-get install liburing-dev")

if(Liburing_FOUND AND NOT TARGET Liburing::liburing)
  add_library(Liburing::liburing UNKNOWN IMPORTED)
  set_target_properties(Liburing::liburing PROPERTIES
    IMPORTED_LOCATION "${LIBURING_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${LIBURING_INCLUDE_DIR}")
endif()
