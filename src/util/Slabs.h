#pragma once

#include <cstddef>
#include <mutex>

namespace workflow {

// Blocks of one size, cut out of slabs. For small objects of which there may be a million now and
// none a moment later. A slab is one piece of Pages. Blocks have no header.
//
// A slab is empty when all of its blocks are free. One empty slab is kept for every two slabs in
// use, and up to kLeastEmpty are kept in any case, so that objects which are created and destroyed
// repeatedly do not need new memory each time. All other empty slabs are returned to the kernel one
// by one.
//
// Blocks are taken and given back in batches, because locking and finding the slab cost more than
// the rest of the work for one block. A batch is a linked list through its blocks.
//
// Thread-safe. A simulation does not schedule the lock: the code that holds it takes a microsecond
// and calls nothing else. Objects are never destroyed.
//
// Invariants:
// 1. A slab is in `partial_` if, and only if, some of its blocks are in use and some are free.
// 2. A slab is in `empty_` if, and only if, none of its blocks is in use.
class Slabs {
 public:
  struct Block {
    Block* next;
  };

  // `size` is the size of a block in bytes: a multiple of 8 from 8 to 1,024.
  explicit Slabs(size_t size) : size_(size) {}
  Slabs(const Slabs&) = delete;
  Slabs& operator=(const Slabs&) = delete;

  // Returns a batch of 1 to `most` blocks, and adds their number to *count. Throws std::bad_alloc.
  Block* take(int most, int* count);
  // Takes back a batch.
  void give(Block* batch) noexcept;

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
  // Removes and returns an empty slab that is not to be kept; null if there is none.
  Slab* take_unneeded();

  const size_t size_;
  mutable std::mutex mutex_;  // guards all members below, and the slabs
  Slab* partial_ = nullptr;
  Slab* empty_ = nullptr;
  size_t empty_count_ = 0;
  size_t slab_count_ = 0;  // all slabs
};

}  // namespace workflow
