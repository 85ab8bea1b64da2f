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

// Returns how much memory this process has from malloc and from Pages, in KiB: what is allocated
// and not freed, and what malloc keeps for each thread. Unlike the resident memory it does not
// depend on fragmentation, which grows for a minute or more until it comes to rest.
inline long used_kib() {
  const struct mallinfo2 info = ::mallinfo2();
  const size_t pages = workflow::Pages::count() * workflow::Pages::kSize;
  return static_cast<long>((info.uordblks + info.hblkhd + pages) / 1024);
}

// Whether so much is as much as before, but for a tenth and so much more.
inline bool is_flat(long before_kib, long after_kib, long slack_kib = 4096) {
  constexpr double kRatio = 1.10;
  // A sanitizer keeps what was freed for a while.
  return kSanitized ||
         after_kib <= static_cast<long>(static_cast<double>(before_kib) * kRatio) + slack_kib;
}

}  // namespace test_support
