#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "util/Pages.h"

namespace workflow {

class NamedNode;

// A name and its nodes, in one block of memory.
struct NameEntry {
  NameEntry* chain;  // the next entry of the bucket
  NamedNode* head;
  NamedNode* tail;
  uint32_t tag;
  uint32_t length;
  uint32_t count;
  char name_begin[4];  // the bytes of the name, which go on behind the struct

  static size_t size_for(std::string_view name);
  std::string_view name() const;
};

// Finds entries by their names: a hash table with a chain in each bucket, which grows by linear
// hashing.
//
// Owns its buckets, not its entries. Not thread-safe, except for prefetch().
//
// With a million names, each bucket and each entry that a look-up reads is a cache miss. So there
// are at least twice as many buckets as entries, and a bucket has a mark that usually shows without
// a look at any entry that a name is not there. A caller that knows early which name it will look
// for can prefetch the bucket.
//
// Every eighth new name splits sixteen buckets in two. So no call ever moves more than the entries
// of sixteen buckets. If the table doubled instead, a caller would wait for half a millisecond with
// a million names. All buckets but the first few lie in Pages. No bucket ever moves.
//
// `tag` is 32 bits of the name's hash. Costs: O(1) expected.
//
// Invariants, with n buckets and 2^k <= n < 2^(k+1):
// 1. An entry is in the bucket whose number is the low k+1 bits of its tag. If there is no bucket
//    of that number yet, the entry is in the bucket whose number is the low k bits.
// 2. There are at least twice as many buckets as entries, or the number of buckets is the maximum.
class NameTable {
 public:
  NameTable() = default;
  ~NameTable();
  NameTable(const NameTable&) = delete;
  NameTable& operator=(const NameTable&) = delete;

  size_t size() const { return size_; }
  // Never decreases.
  size_t bucket_count() const { return bucket_count_.load(std::memory_order_relaxed); }
  NameEntry* first_in(size_t bucket) const { return bucket_at(bucket).first(); }

  // A position in a visit of all entries. The visit has several steps, each of which is a
  // first_at() followed by an advance(). The table may change between steps: an entry that is in
  // the table during the whole visit is visited exactly once. The buckets are visited in the order
  // of their numbers with the bits reversed. In that order a bucket and those that split off it are
  // neighbours.
  using Position = uint32_t;  // begins at 0
  NameEntry* first_at(Position position) const { return bucket_of(position).first(); }
  // Goes to the next bucket. Returns false if there is none.
  bool advance(Position* position) const;

  // Returns the entry of the name, or null.
  NameEntry* find(std::string_view name, uint32_t tag) const;
  // Adds an entry without nodes for a name that has no entry, and returns it. When this throws
  // std::bad_alloc, nothing has changed.
  NameEntry* add(std::string_view name, uint32_t tag);
  // Removes an entry from the table. The caller frees it.
  void remove(NameEntry* entry);
  static void free(NameEntry* entry);

  // Prefetches the bucket that a later find() or add() of this tag will read. Any thread may call
  // this at any time. If what it reads is out of date, the prefetch is useless but harmless.
  void prefetch(uint32_t tag) const;

 private:
  // The first entry of a bucket and a mark, in one word.
  class Bucket {
   public:
    NameEntry* first() const { return reinterpret_cast<NameEntry*>(word_ & ~kMarks); }
    void set_first(NameEntry* entry) {
      const bool alone = entry && !entry->chain;
      word_ = reinterpret_cast<uintptr_t>(entry) | (alone ? mark_of(entry->tag) : kSeveral);
    }
    // Returns false only if no entry of the bucket has that tag.
    bool may_have(uint32_t tag) const {
      const uintptr_t mark = word_ & kMarks;
      return word_ != 0 && (mark == kSeveral || mark == mark_of(tag));
    }

   private:
    static constexpr uintptr_t kMarks = alignof(NameEntry) - 1;
    static constexpr uintptr_t kSeveral = 0;  // several entries, or none
    // Uses the high bits of the tag, which do not select the bucket in a table of up to 2^28
    // buckets.
    static uintptr_t mark_of(uint32_t tag) { return 1 + (tag >> 28) % kMarks; }
    uintptr_t word_ = 0;
  };

  // This many buckets are part of the table object. Most tables have no more.
  static constexpr size_t kFirstBuckets = 32;
  static constexpr size_t kBucketsPerPiece = Pages::kSize / sizeof(Bucket);
  static constexpr size_t kSplits = 16;
  // Bounds the number of buckets. With more names than half of that number, chains become longer.
  static constexpr size_t kPieces = 16;

  size_t number_of(uint32_t tag) const {
    const size_t count = bucket_count();
    const size_t mask = std::bit_ceil(count) - 1;
    const size_t number = tag & mask;
    return number < count ? number : number & mask >> 1;
  }
  Bucket& bucket_at(size_t number) const {
    return number < kFirstBuckets ? first_[number] : *in_piece(number);
  }
  // The piece of the bucket must exist.
  Bucket* in_piece(size_t number) const {
    return pieces_[number / kBucketsPerPiece].load(std::memory_order_relaxed) +
           number % kBucketsPerPiece;
  }
  Bucket& bucket_of(uint32_t tag) const { return bucket_at(number_of(tag)); }
  // Adds a bucket, and moves entries to it from the one that it splits off.
  void split();
  // Splits kSplits buckets at once, because neighbouring buckets share cache lines.
  void grow();

  // These come first, in one cache line, because each look-up reads them.
  //
  // Two are atomic, for prefetch() only. They are relaxed: the lock of the table's owner orders all
  // other calls. prefetch() computes an address from them, which it does not access, so it may see
  // an old value of either.
  std::atomic<size_t> bucket_count_{4};
  size_t size_ = 0;
  std::array<std::atomic<Bucket*>, kPieces> pieces_{};  // a piece stays once it exists
  mutable std::array<Bucket, kFirstBuckets> first_;
};

}  // namespace workflow
