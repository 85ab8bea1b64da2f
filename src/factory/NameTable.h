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

// Entries by their names: a hash table with a chain in each bucket, which grows by linear hashing.
//
// Owns its buckets, not its entries. Not thread-safe, but for prefetch().
//
// Among a million names each bucket and each entry is a wait for memory. So the buckets are at most
// half full, and tell mostly by themselves that a name is not there, without a look at the entry of
// another one; and a caller that knows early which name it will look for has the bucket fetched
// meanwhile.
//
// Every eighth new name splits sixteen buckets in two, so that no call ever moves more than the
// entries of these: a table that doubled would keep its callers waiting for half a millisecond
// among a million names. Beyond the first few, buckets lie in Pages, and never move.
//
// `tag` is 32 bits of the name's hash. Costs: O(1) expected.
//
// Invariants, with n buckets and 2^k <= n < 2^(k+1):
// 1. An entry is in the bucket that the low k+1 bits of its tag name, or if there is none of that
//    number yet, in the one that the low k bits name.
// 2. There are at least twice as many buckets as entries, or as many buckets as there can be.
class NameTable {
 public:
  NameTable() = default;
  ~NameTable();
  NameTable(const NameTable&) = delete;
  NameTable& operator=(const NameTable&) = delete;

  size_t size() const { return size_; }
  // Never less than it was.
  size_t bucket_count() const { return bucket_count_.load(std::memory_order_relaxed); }
  NameEntry* first_in(size_t bucket) const { return bucket_at(bucket).first(); }

  // For a visit of all entries in several steps, each of which is a first_at() followed by an
  // advance(). The table may change between steps: an entry that is in it all the while is visited
  // exactly once. The order of the buckets is that of their numbers with the bits reversed. In that
  // order a bucket and the buckets that split off it are neighbours.
  using Position = uint32_t;  // begins at 0
  NameEntry* first_at(Position position) const { return bucket_of(position).first(); }
  // Goes to the next bucket. False when there is none.
  bool advance(Position* position) const;

  // The entry of the name, or null.
  NameEntry* find(std::string_view name, uint32_t tag) const;
  // A new one without nodes, of a name that has none. Throws std::bad_alloc; nothing has changed
  // then.
  NameEntry* add(std::string_view name, uint32_t tag);
  // Takes out an entry, for the caller to free.
  void remove(NameEntry* entry);
  static void free(NameEntry* entry);

  // Has the bucket fetched that a find() or add() to come looks at. Any thread, at any time: what
  // it says may be old, and costs time only.
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
    // False: no entry has that tag.
    bool may_have(uint32_t tag) const {
      const uintptr_t mark = word_ & kMarks;
      return word_ != 0 && (mark == kSeveral || mark == mark_of(tag));
    }

   private:
    static constexpr uintptr_t kMarks = alignof(NameEntry) - 1;
    static constexpr uintptr_t kSeveral = 0;  // or none
    // Of bits that do not tell the bucket, in tables of less than 2^28.
    static uintptr_t mark_of(uint32_t tag) { return 1 + (tag >> 28) % kMarks; }
    uintptr_t word_ = 0;
  };

  // So many buckets need no memory of their own. Most tables have no more.
  static constexpr size_t kFirstBuckets = 32;
  static constexpr size_t kBucketsPerPiece = Pages::kSize / sizeof(Bucket);
  static constexpr size_t kSplits = 16;
  // With more names than half of that the chains become longer.
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
  // May be called by any thread; what is returned may be anything then.
  Bucket* in_piece(size_t number) const {
    return pieces_[number / kBucketsPerPiece].load(std::memory_order_relaxed) +
           number % kBucketsPerPiece;
  }
  Bucket& bucket_of(uint32_t tag) const { return bucket_at(number_of(tag)); }
  // Adds a bucket, with entries of the one that it splits off.
  void split();
  // Several, as neighbours share cache lines.
  void grow();

  // What each look-up reads comes first, in one cache line.
  std::atomic<size_t> bucket_count_{4};
  size_t size_ = 0;
  std::array<std::atomic<Bucket*>, kPieces> pieces_{};  // once there, they stay
  mutable std::array<Bucket, kFirstBuckets> first_;
};

}  // namespace workflow
