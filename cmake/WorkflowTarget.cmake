# workflow_own_target(<target> [17]): the compile and link options of our own targets; C++20, or
# C++17 as users may have it. They are set on each target, never globally, and never reach a
# consumer.

function(workflow_sanitize target)
  if(WORKFLOW_BUILD_FUZZERS)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
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
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_compile_options(${target} PRIVATE -Wthread-safety -Werror=thread-safety)
  endif()
  if(WORKFLOW_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  workflow_sanitize(${target})
endfunction()
