#pragma once

#include <cstddef>
#include <mutex>

namespace workflow {

// Blocks of one size, cut out of slabs: memory for small objects of which there may be a million
// now and none soon. A slab is one piece of Pages. Blocks have no header.
//
// A slab is empty when all of its blocks are free. Of the empty slabs one is kept for every two
// slabs in use, and up to kLeastEmpty are kept in any case, so that objects which come and go
// beside others do not pay for new memory each time. All other empty slabs return to the kernel one
// by one.
//
// Blocks come and go in batches, as the lock and the slab of each block cost more than the block.
// A batch is a linked list through its blocks.
//
// Thread-safe. The lock is not one that a simulation schedules: what is done under it takes a
// microsecond and calls nothing. Never destroyed.
//
// Invariants:
// 1. A slab is in `partial_` exactly if some of its blocks are in use and some are free.
// 2. A slab is in `empty_` exactly if none of its blocks is in use.
class Slabs {
 public:
  struct Block {
    Block* next;
  };

  // `size` is that of the blocks: a multiple of 8 from 8 to 1,024.
  explicit Slabs(size_t size) : size_(size) {}
  Slabs(const Slabs&) = delete;
  Slabs& operator=(const Slabs&) = delete;

  // From 1 to `most` blocks; adds their number to *count. Throws std::bad_alloc.
  Block* take(int most, int* count);
  // Takes back a batch.
  void give(Block* batch) noexcept;

  // How many slabs there are: for tests.
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
  // Takes an empty slab out that is not to stay; null when there is none.
  Slab* take_unneeded();

  const size_t size_;
  mutable std::mutex mutex_;  // guards all that follows, and the slabs
  Slab* partial_ = nullptr;
  Slab* empty_ = nullptr;
  size_t empty_count_ = 0;
  size_t slab_count_ = 0;  // of all
};

}  // namespace workflow
