# Finds c-ares.
#
#   Cares_FOUND, Cares_VERSION
#   Cares::cares   its library and include path
#
# Installed beside the package files: programs that link the static library need it too.

find_path(CARES_INCLUDE_DIR ares.h)
find_library(CARES_LIBRARY cares)
mark_as_advanced(CARES_INCLUDE_DIR CARES_LIBRARY)

if(CARES_INCLUDE_DIR AND EXISTS "${CARES_INCLUDE_DIR}/ares_version.h")
  file(STRINGS "${CARES_INCLUDE_DIR}/ares_version.h" version_line
    REGEX "#define ARES_VERSION_STR \"")
  string(REGEX REPLACE ".*\"([0-9.]+).*" "\\1" Cares_VERSION "${version_line}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Cares
  REQUIRED_VARS CARES_LIBRARY CARES_INCLUDE_DIR
  VERSION_VAR Cares_VERSION
  REASON_FAILURE_MESSAGE "Debian: apt-get install libc-ares-dev")

if(Cares_FOUND AND NOT TARGET Cares::cares)
  add_library(Cares::cares UNKNOWN IMPORTED)
  set_target_properties(Cares::cares PROPERTIES
    IMPORTED_LOCATION "${CARES_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${CARES_INCLUDE_DIR}")
endif()
