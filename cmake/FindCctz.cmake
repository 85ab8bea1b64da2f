# Finds cctz, which reads the time zones of the system.
#
#   Cctz_FOUND
#   Cctz::cctz   its library and include path
#
# Installed beside the package files: programs that link the static library need it too.

find_path(CCTZ_INCLUDE_DIR cctz/time_zone.h)
find_library(CCTZ_LIBRARY cctz)
mark_as_advanced(CCTZ_INCLUDE_DIR CCTZ_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Cctz
  REQUIRED_VARS CCTZ_LIBRARY CCTZ_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "Debian: apt-get install libcctz-dev")

if(Cctz_FOUND AND NOT TARGET Cctz::cctz)
  add_library(Cctz::cctz UNKNOWN IMPORTED)
  set_target_properties(Cctz::cctz PROPERTIES
    IMPORTED_LOCATION "${CCTZ_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${CCTZ_INCLUDE_DIR}")
endif()
