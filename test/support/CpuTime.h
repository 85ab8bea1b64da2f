#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace test_support {

// The time that all threads of this process have spent on a processor.
inline int64_t cpu_us() {
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * int64_t{1'000'000} +
         usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

}  // namespace test_support
