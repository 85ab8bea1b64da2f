# Finds the sources and the header of llhttp, as Debian's node-llhttp package ships them.
#
#   Llhttp_FOUND, Llhttp_VERSION
#   LLHTTP_INCLUDE_DIR   directory of llhttp.h
#   LLHTTP_SOURCE_DIR    directory of api.c, http.c, llhttp.c
#   workflow_llhttp      object library of the parser; a library takes it in with
#                        $<TARGET_OBJECTS:workflow_llhttp>
#   workflow_llhttp_headers   interface library: include path and mode, for users of llhttp.h
#
# Its symbols are hidden: the shared library exports none of them, and a program that brings an
# llhttp of its own does not meet ours there.

find_path(LLHTTP_INCLUDE_DIR llhttp.h
  PATHS /usr/share/include /usr/local/share/include PATH_SUFFIXES llhttp)
find_path(LLHTTP_SOURCE_DIR NAMES llhttp.c
  PATHS /usr/share /usr/local/share PATH_SUFFIXES llhttp)
mark_as_advanced(LLHTTP_INCLUDE_DIR LLHTTP_SOURCE_DIR)

if(LLHTTP_INCLUDE_DIR)
  file(STRINGS "${LLHTTP_INCLUDE_DIR}/llhttp.h" version_lines REGEX "#define LLHTTP_VERSION_")
  string(REGEX REPLACE
    ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3"
    Llhttp_VERSION "${version_lines}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Llhttp
  REQUIRED_VARS LLHTTP_SOURCE_DIR LLHTTP_INCLUDE_DIR
  VERSION_VAR Llhttp_VERSION
  REASON_FAILURE_MESSAGE "Debian: apt-get install node-llhttp")

if(Llhttp_FOUND AND NOT TARGET workflow_llhttp)
  add_library(workflow_llhttp_headers INTERFACE)
  target_include_directories(workflow_llhttp_headers SYSTEM INTERFACE "${LLHTTP_INCLUDE_DIR}")
  # llhttp 8 decides at compile time how much it tolerates, and its header must agree.
  target_compile_definitions(workflow_llhttp_headers INTERFACE LLHTTP_STRICT_MODE=1)

  add_library(workflow_llhttp OBJECT
    "${LLHTTP_SOURCE_DIR}/api.c" "${LLHTTP_SOURCE_DIR}/http.c" "${LLHTTP_SOURCE_DIR}/llhttp.c")
  target_link_libraries(workflow_llhttp PRIVATE workflow_llhttp_headers)
  set_target_properties(workflow_llhttp PROPERTIES
    POSITION_INDEPENDENT_CODE ON
    C_VISIBILITY_PRESET hidden)
  # Generated code that is not ours to clean up.
  target_compile_options(workflow_llhttp PRIVATE -w)
endif()
