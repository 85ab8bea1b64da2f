#pragma once

#include <atomic>
#include <cstddef>

#include "util/Sanitizers.h"

namespace workflow {

// Memory in pieces of 32 KiB, aligned to their size, which are allocated from the kernel. Up to
// kMostKept of those that are given back are kept for the next take(); the others are returned to
// the kernel at once.
//
// It is for memory that is allocated and freed while timers run. malloc() is not used for this: in
// glibc, a malloc() of 1 KiB or more, and a free() whose block forms 64 KiB with the free memory
// around it, first merge every small free block of the heap. That takes about a millisecond for
// each 4,096 blocks that were freed since the last time, and 200 ms for a million. glibc also
// returns no memory that lies below a block in use.
//
// A piece from the kernel costs two system calls, which take about 6 us together, and the page
// faults of its first use. Unmapping it also interrupts every core on which the process runs. For a
// hundred thousand timers that are created and end again and again, this was up to two thirds of
// all processor time on a virtual machine with slow page faults, so the memory of about that many
// is kept.
//
// Thread-safe.
class Pages {
 public:
  static constexpr size_t kSize = size_t{32} * 1024;
  // 16 MiB.
  static constexpr size_t kMostKept = 512;

  // Throws std::bad_alloc. The contents are undefined.
  static void* take();
  static void give(void* pages) noexcept;

  // How many pieces are in use. For tests.
  static size_t count() { return count_.load(std::memory_order_relaxed); }
  // How many are kept. For tests.
  static size_t kept_count();

  // Whether the memory comes from operator new instead. This is so with AddressSanitizer, which
  // then detects uses after a free, and after make_plain().
  static bool plain() { return kAlwaysPlain || plain_; }
  // For programs that make allocations fail. Must be called before the first piece is taken.
  static void make_plain() { plain_ = true; }

 private:
#if defined(WORKFLOW_ADDRESS_SANITIZER)
  static constexpr bool kAlwaysPlain = true;
#else
  static constexpr bool kAlwaysPlain = false;
#endif

  static inline constinit bool plain_ = false;
  // Relaxed: a count that publishes nothing.
  static inline constinit std::atomic<size_t> count_{0};
};

struct GivePages {
  void operator()(void* pages) const noexcept { Pages::give(pages); }
};

}  // namespace workflow
