# Finds hiredis, whose reader parses the answers of Redis.
#
#   Hiredis_FOUND, Hiredis_VERSION
#   Hiredis::hiredis   its library and include path
#
# Installed beside the package files: programs that link the static store library need it too.

find_path(HIREDIS_INCLUDE_DIR hiredis/read.h)
find_library(HIREDIS_LIBRARY hiredis)
mark_as_advanced(HIREDIS_INCLUDE_DIR HIREDIS_LIBRARY)

if(HIREDIS_INCLUDE_DIR AND EXISTS "${HIREDIS_INCLUDE_DIR}/hiredis/hiredis.h")
  file(STRINGS "${HIREDIS_INCLUDE_DIR}/hiredis/hiredis.h" version_lines
    REGEX "#define HIREDIS_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3"
    Hiredis_VERSION "${version_lines}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Hiredis
  REQUIRED_VARS HIREDIS_LIBRARY HIREDIS_INCLUDE_DIR
  VERSION_VAR Hiredis_VERSION
  REASON_FAILURE_MESSAGE "Debian: apt-get install libhiredis-dev")

if(Hiredis_FOUND AND NOT TARGET Hiredis::hiredis)
  add_library(Hiredis::hiredis UNKNOWN IMPORTED)
  set_target_properties(Hiredis::hiredis PROPERTIES
    IMPORTED_LOCATION "${HIREDIS_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${HIREDIS_INCLUDE_DIR}")
endif()
