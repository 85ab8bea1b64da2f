# A toolchain file: compiles on this machine for aarch64, and runs the programs under qemu-user.
#
# The libraries are those that `script/bootstrap aarch64` has unpacked into build/aarch64-root. Another
# root of a Debian for aarch64 serves as well: -D WORKFLOW_AARCH64_ROOT=<directory>.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)

get_filename_component(default_root "${CMAKE_CURRENT_LIST_DIR}/../build/aarch64-root" ABSOLUTE)
set(WORKFLOW_AARCH64_ROOT "${default_root}" CACHE PATH "The libraries for aarch64")
# What try_compile() configures reads this file, too, and knows no variable that it is not given.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES WORKFLOW_AARCH64_ROOT)
if(NOT EXISTS "${WORKFLOW_AARCH64_ROOT}/usr/lib/aarch64-linux-gnu")
  message(FATAL_ERROR
    "There are no libraries for aarch64 in ${WORKFLOW_AARCH64_ROOT}: run script/bootstrap aarch64")
endif()

set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_SYSROOT "${WORKFLOW_AARCH64_ROOT}")
# The emulator looks below the root first when a program opens a file, as the dynamic linker does.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L "${WORKFLOW_AARCH64_ROOT}")

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# llhttp is source code, and that of this machine. Headers of other libraries are in the root, which is
# searched first.
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${WORKFLOW_AARCH64_ROOT}")
set(ENV{PKG_CONFIG_LIBDIR}
  "${WORKFLOW_AARCH64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${WORKFLOW_AARCH64_ROOT}/usr/share/pkgconfig")
