#pragma once

#include <array>
#include <cstddef>
#include <new>
#include <utility>

#include "util/Pages.h"
#include "util/Slabs.h"

namespace workflow {

// Memory for small objects that one thread allocates and another frees, many per second or very
// many at once.
//
// glibc's malloc handles such objects badly. It collects freed blocks of up to 120 bytes without
// merging them. The next thread that allocates 1 KiB or more has to merge all of them, which delays
// that thread (see Pages).
//
// Here each thread keeps at most two batches of free blocks of each size. All other free blocks are
// in Slabs, which give empty memory back to Pages.
//
// Sizes are rounded up, to multiples of 8 up to kLargestFine, and of 64 above.
//
// Thread-safe. Where Pages::plain() is true, blocks come from operator new and are not kept.
class BlockCache {
 public:
  static constexpr int kBatch = Slabs::kBatch;
  static constexpr size_t kLargestFine = 320;
  // Larger blocks come from operator new and are not kept.
  static constexpr size_t kLargest = 1024;

  // The block is aligned to 16 bytes if `size` is a multiple of that, and else to 8. Throws
  // std::bad_alloc.
  static void* take(size_t size) {
    if (size > kLargest || Pages::plain()) return ::operator new(size);
    const size_t kind = kind_of(size);
    Local& local = local_[kind];
    if (!local.open.head) {
      refill(local, kind);
    }
    Slabs::Block* const block = local.open.head;
    local.open.head = block->next;
    local.open.count--;
    return block;
  }

  // `size` must be the one that was passed to take().
  static void give(void* memory, size_t size) noexcept {
    if (size > kLargest || Pages::plain()) {
      ::operator delete(memory);
      return;
    }
    const size_t kind = kind_of(size);
    Local& local = local_[kind];
    if (local.open.count < most_) {
      push(local, memory);
    } else {
      give_to_slab(memory, kind);
    }
  }

  // The Slabs from which blocks of this kind come. For tests.
  static Slabs& slabs(size_t kind);
  static constexpr size_t kind_of(size_t size) {
    return size == 0              ? 0
           : size <= kLargestFine ? (size - 1) / kFineStep
                                  : kFineKinds + (size - kLargestFine - 1) / kCoarseStep;
  }

 private:
  static constexpr size_t kFineStep = 8;
  static constexpr size_t kFineKinds = kLargestFine / kFineStep;
  static constexpr size_t kCoarseStep = 64;
  static constexpr size_t kKinds = kFineKinds + (kLargest - kLargestFine) / kCoarseStep;

  // The size of the blocks of a kind.
  static constexpr size_t size_of(size_t kind) {
    return kind < kFineKinds ? (kind + 1) * kFineStep
                             : kLargestFine + (kind - kFineKinds + 1) * kCoarseStep;
  }

  struct Batch {
    Slabs::Block* head;
    int count;
  };
  // The free blocks of one size that a thread keeps.
  struct Local {
    Batch open;
    Batch full;  // holds kBatch blocks or none
  };

  static void push(Local& local, void* memory) {
    local.open.head = new (memory) Slabs::Block{local.open.head};
    local.open.count++;
  }
  static void refill(Local& local, size_t kind);
  static void give_to_slab(void* memory, size_t kind) noexcept;
  // Makes sure that at_end() runs when the thread ends. Returns false, and the thread keeps
  // nothing, if it has run already, or if there is no memory for that now.
  static bool expect_end() noexcept;
  // Gives back the blocks of a thread when it ends.
  static void at_end(void*) noexcept;
  template <size_t... KIND>
  static Slabs* make_slabs(std::index_sequence<KIND...> kinds);

  // These have no destructor, so that they can be used until the thread has ended.
  static inline constinit thread_local std::array<Local, kKinds> local_{};
  // How many blocks an open batch may hold; 0 before the first use and after at_end().
  static inline constinit thread_local int most_ = 0;
  static inline constinit thread_local bool ended_ = false;
};

}  // namespace workflow
