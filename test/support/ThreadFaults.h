#pragma once

#include <pthread.h>

#include <atomic>
#include <cerrno>

#include "support/RealFunction.h"

// Threads that cannot be started when a test says so. Included by the one source file of a program:
// its definition stands before that of the C library.

namespace test_support {

// The number of threads that can still be started. A negative number means no limit.
inline std::atomic<int> threads_left{-1};

}  // namespace test_support

extern "C" {

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) {
  static const auto call =
      test_support::real_function<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>(
          "pthread_create");
  if (test_support::threads_left == 0) return EAGAIN;
  if (test_support::threads_left > 0) {
    test_support::threads_left--;
  }
  return call(thread, attributes, body, argument);
}

}  // extern "C"
