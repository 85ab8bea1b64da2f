#pragma once

#include <array>
#include <cstddef>
#include <mutex>

#include "workflow/detail/FutexMutex.h"

namespace workflow {

// Blocks of one size, cut out of slabs. For small objects of which there may be a million now and
// none a moment later. A slab is one piece of Pages. Blocks have no header.
//
// A slab is empty when all of its blocks are free. One empty slab is kept for every two slabs in
// use, and up to kLeastEmpty are kept in any case, so that objects which are created and destroyed
// repeatedly do not need new memory each time. All other empty slabs are given back to Pages one by
// one.
//
// Blocks are taken and given back in batches, because locking and finding the slab cost more than
// the rest of the work for one block. A batch is a linked list through its blocks.
//
// Where one thread allocates what another frees, whole batches go from the one to the other as they
// are. To take a batch apart, and to collect another one, are two cache misses for each block while
// the lock is held. At most kMostKept batches are kept for this, and only as many as were taken
// before. Their blocks count as in use, so they may keep slabs from being empty. When more batches
// come back than were taken, all of them go to their slabs: after many objects were destroyed,
// nothing is kept.
//
// Thread-safe. A simulation does not schedule the lock: the code that holds it takes a microsecond
// and calls nothing else. Objects are never destroyed.
//
// Invariants:
// 1. A slab is in `partial_` if, and only if, some of its blocks are in use and some are free.
// 2. A slab is in `empty_` if, and only if, none of its blocks is in use.
// 3. kept_count_ + wanted_ <= kMostKept.
class Slabs {
 public:
  struct Block {
    Block* next;
  };

  // The number of blocks of a whole batch.
  static constexpr int kBatch = 16;
  // How many whole batches are kept at most.
  static constexpr int kMostKept = 8;

  // `size` is the size of a block in bytes: a multiple of 8 from 8 to 1,024.
  explicit Slabs(size_t size) : size_(size) {}
  Slabs(const Slabs&) = delete;
  Slabs& operator=(const Slabs&) = delete;

  // Returns a batch of 1 to `most` blocks, and adds their number to *count. Throws std::bad_alloc.
  Block* take(int most, int* count);
  // Takes back a batch.
  void give(Block* batch) noexcept;
  // The same for a batch of kBatch blocks, which the next take(kBatch) may return.
  void give_whole(Block* batch) noexcept;

  // How many slabs exist. For tests.
  size_t slab_count() const;

 private:
  struct Slab;
  // Up to this many empty slabs are kept however few slabs are in use.
  static constexpr size_t kLeastEmpty = 4;

  static Slab* slab_of(Block* block);
  static void link(Slab*& first, Slab* slab);
  static void unlink(Slab*& first, Slab* slab);
  Block* take_from(Slab* slab);
  void give_one(Block* block);
  std::unique_lock<NativeMutex> lock() const;
  // Removes and returns an empty slab that is not to be kept; null if there is none.
  Slab* take_unneeded();

  const size_t size_;
  mutable NativeMutex mutex_;  // guards all members below, and the slabs
  Slab* partial_ = nullptr;
  Slab* empty_ = nullptr;
  size_t empty_count_ = 0;
  size_t slab_count_ = 0;                 // all slabs
  std::array<Block*, kMostKept> kept_{};  // whole batches; the first kept_count_ are valid
  int kept_count_ = 0;
  int wanted_ = 0;  // how many more would be kept if they came back now
};

}  // namespace workflow
