# workflow_own_target(<target> [17]): the compile and link options of our own targets; C++20, or
# C++17 as users may have it. They are set on each target, never globally, and never reach a
# consumer.
#
# workflow_precompile(<target> <header>...): precompiles headers for a target of the library, if
# WORKFLOW_PRECOMPILE says so. A source file must not depend on that: the preset "check" compiles the
# library without. Where g++ optimises and warnings are errors it had better be
# off: g++ 12 takes what it has inlined from precompiled headers of the system for ours, and warns of
# bounds that are right.

# A compiler cache takes the bytes of a precompiled header for a source, and those differ from one
# build to the next: it would find nothing.
if(CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
endif()

function(workflow_precompile target)
  if(WORKFLOW_PRECOMPILE)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# workflow_instrument(<target>): what the fuzzers explore, so that they see which branches were taken.
function(workflow_instrument target)
  if(WORKFLOW_BUILD_FUZZERS)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

if(WORKFLOW_LLD)
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=lld WORKFLOW_HAS_LLD)
endif()

function(workflow_sanitize target)
  if(NOT WORKFLOW_SANITIZE)
    return()
  endif()
  target_compile_options(${target} PRIVATE
    -fsanitize=${WORKFLOW_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  # The check of an object's dynamic type opens a pipe to see whether memory is readable, and calls
  # good objects bad when there are no descriptors left, which is what some tests are about.
  # AddressSanitizer reports objects that are gone.
  target_compile_options(${target} PRIVATE -fno-sanitize=vptr)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ 12 takes the flags of the addition that makes a thread-local variable's address for the
    # check, and the linker relaxes that addition to an lea, which sets none. AddressSanitizer
    # reports the dereference of a null pointer anyway.
    target_compile_options(${target} PRIVATE -fno-sanitize=null)
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # clang 14 cannot assemble a coroutine that is an inline function or a template's, if pointers to
    # functions are checked ("Cannot represent a difference across sections").
    target_compile_options(${target} PRIVATE -fno-sanitize=function)
  endif()
  target_link_options(${target} PRIVATE -fsanitize=${WORKFLOW_SANITIZE})
endfunction()

function(workflow_own_target target)
  set(standard 20)
  if(ARGC GREATER 1)
    set(standard ${ARGV1})
  endif()
  target_compile_features(${target} PRIVATE cxx_std_${standard})
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -Wshadow)
  # Half a gigabyte before g++ looks for memory to give back: it would a dozen times for each file,
  # through all of the precompiled headers. They are what fills it, so it needs hardly more.
  if((WORKFLOW_PRECOMPILE OR WORKFLOW_BUILD_TESTS) AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=524288>)
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_compile_options(${target} PRIVATE -Wthread-safety -Werror=thread-safety)
  endif()
  if(WORKFLOW_STD_MUTEX)
    target_compile_definitions(${target} PRIVATE WORKFLOW_STD_MUTEX)
  endif()
  if(WORKFLOW_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(WORKFLOW_LLD AND WORKFLOW_HAS_LLD)
    target_link_options(${target} PRIVATE -fuse-ld=lld)
  endif()
  workflow_sanitize(${target})
endfunction()
