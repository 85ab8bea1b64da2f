#pragma once

#include <malloc.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>

#include "support/Sanitizers.h"
#include "util/Pages.h"

namespace test_support {

// Returns the resident memory of this process in KiB, without what Pages keeps for later.
inline long resident_kib() {
  long pages = 0;
  long resident = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%ld %ld", &pages, &resident) != 2) {
      resident = 0;
    }
    std::fclose(file);
  }
  const size_t kept = workflow::Pages::kept_count() * workflow::Pages::kSize;
  return resident * (::sysconf(_SC_PAGESIZE) / 1024) - static_cast<long>(kept / 1024);
}

// Like resident_kib(), without the memory that malloc keeps for later.
inline long settled_kib() {
  ::malloc_trim(0);
  return resident_kib();
}

// Whether so much is as much as before.
inline bool is_flat(long before_kib, long after_kib) {
  constexpr double kRatio = 1.10;
  constexpr long kSlackKib = 4096;
  // A sanitizer keeps what was freed for a while.
  return kSanitized ||
         after_kib <= static_cast<long>(static_cast<double>(before_kib) * kRatio) + kSlackKib;
}

}  // namespace test_support
