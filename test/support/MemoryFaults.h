#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "kernel/ThreadContext.h"
#include "util/Pages.h"
#include "util/Sanitizers.h"

// Allocations that fail when a test says so. Included by the one source file of a program: its
// malloc() and operator new stand before those of the C and C++ libraries and of the sanitizers,
// for OpenSSL, too.

namespace fault {

// The allocations number first_failing to last_failing, counted from arm(), fail.
inline bool armed = false;  // by atomic accesses
inline std::atomic<long> first_failing{0};
inline std::atomic<long> last_failing{0};
inline std::atomic<long> allocations{0};
inline std::atomic<long> failures{0};
// Whether the allocations of this thread count, too. Those of threads of the library always do.
inline constinit thread_local bool counts_here = false;

// All memory of the library is malloc's here, so that every allocation can fail.
inline const bool made_plain = (workflow::Pages::make_plain(), true);

// From now on allocations are counted anew. The n-th of them fails, and the `more` after it.
inline void arm(long n, long more = 0) {
  allocations = 0;
  failures = 0;
  first_failing = n;
  last_failing = n + more;
  __atomic_store_n(&armed, true, __ATOMIC_SEQ_CST);
}
// Returns how many allocations have failed.
inline long disarm() {
  __atomic_store_n(&armed, false, __ATOMIC_SEQ_CST);
  return failures;
}

inline bool fails_now() {
  const workflow::ThreadContext& context = workflow::ThreadContext::current();
  if (!context.pool && !context.poller && !counts_here) return false;
  const long number = ++allocations;
  if (number < first_failing || number > last_failing) return false;
  failures++;
  errno = ENOMEM;
  return true;
}

// A process allocates before its sanitizer is ready.
#if defined(__clang__)
#define FAULT_EARLY __attribute__((disable_sanitizer_instrumentation))
#else
#define FAULT_EARLY \
  __attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))
#endif

FAULT_EARLY inline bool no_memory() {
  return __atomic_load_n(&armed, __ATOMIC_RELAXED) && fails_now();
}

}  // namespace fault

extern "C" {

#if defined(WORKFLOW_ADDRESS_SANITIZER) || defined(WORKFLOW_THREAD_SANITIZER)
void* __interceptor_malloc(size_t size);
void* __interceptor_calloc(size_t count, size_t size);
void* __interceptor_realloc(void* memory, size_t size);
void __interceptor_free(void* memory);
#define FAULT_REAL(name) __interceptor_##name
#else
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void __libc_free(void* memory);
#define FAULT_REAL(name) __libc_##name
#endif

FAULT_EARLY void* malloc(size_t size) {
  return fault::no_memory() ? nullptr : FAULT_REAL(malloc)(size);
}
FAULT_EARLY void* calloc(size_t count, size_t size) {
  return fault::no_memory() ? nullptr : FAULT_REAL(calloc)(count, size);
}
FAULT_EARLY void* realloc(void* memory, size_t size) {
  return fault::no_memory() ? nullptr : FAULT_REAL(realloc)(memory, size);
}

}  // extern "C"

void* operator new(size_t size) {
  void* memory = malloc(size > 0 ? size : 1);
  if (!memory) {
    throw std::bad_alloc();
  }
  return memory;
}
void* operator new[](size_t size) {
  return operator new(size);
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return malloc(size > 0 ? size : 1);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return malloc(size > 0 ? size : 1);
}
void* operator new(size_t size, std::align_val_t alignment) {
  void* memory = nullptr;
  if (fault::no_memory() || ::posix_memalign(&memory, static_cast<size_t>(alignment), size) != 0) {
    throw std::bad_alloc();
  }
  return memory;
}
void operator delete(void* memory, std::align_val_t) noexcept {
  FAULT_REAL(free)(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  FAULT_REAL(free)(memory);
}
void operator delete(void* memory) noexcept {
  FAULT_REAL(free)(memory);
}
void operator delete[](void* memory) noexcept {
  FAULT_REAL(free)(memory);
}
void operator delete(void* memory, size_t) noexcept {
  FAULT_REAL(free)(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  FAULT_REAL(free)(memory);
}
