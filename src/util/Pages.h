#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "util/Sanitizers.h"

namespace workflow {

// Memory in pieces of 32 KiB, aligned to their size, taken from the kernel and given back to it.
//
// For memory that comes and goes while timers run. malloc is not asked for it, because glibc's
// malloc() of 1 KiB and more, and its free() of what becomes 64 KiB with the free memory around it,
// first merge every small free block of the heap: about a millisecond for each 4,096 blocks that
// were freed since the last time, and 200 ms for a million. It also returns no memory that lies
// below a block in use. A piece costs two system calls, which take about 6 us together, and the
// page faults of its first use.
//
// Thread-safe.
class Pages {
 public:
  static constexpr size_t kSize = size_t{32} * 1024;

  // Throws std::bad_alloc. The contents are undefined.
  static void* take();
  static void give(void* pages) noexcept;

  // How many pieces are in use: for tests.
  static size_t count() { return count_.load(std::memory_order_relaxed); }

  // Whether all of this is memory of operator new instead: with AddressSanitizer, which then sees
  // what is used after it was freed, and after make_plain().
  static bool plain() { return kAlwaysPlain || plain_; }
  // For programs that make allocations fail. Before the first piece is taken.
  static void make_plain() { plain_ = true; }

 private:
#if defined(WORKFLOW_ADDRESS_SANITIZER)
  static constexpr bool kAlwaysPlain = true;
#else
  static constexpr bool kAlwaysPlain = false;
#endif

  static inline constinit bool plain_ = false;
  static inline constinit std::atomic<size_t> count_{0};
};

struct GivePages {
  void operator()(void* pages) const noexcept { Pages::give(pages); }
};

}  // namespace workflow
