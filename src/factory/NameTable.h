#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

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

// Entries by their names: a hash table with a chain in each bucket.
//
// Owns its buckets, not its entries. Not thread-safe, but for prefetch().
//
// Among a million names each bucket and each entry is a wait for memory. So the buckets are at most
// half full, and tell mostly by themselves that a name is not there, without a look at the entry of
// another one; and who knows early which name it will be has the bucket fetched meanwhile.
//
// `tag` is 32 bits of the name's hash. Costs: O(1) expected; to grow O(size).
class NameTable {
 public:
  NameTable() = default;
  ~NameTable() { delete[] buckets(); }
  NameTable(const NameTable&) = delete;
  NameTable& operator=(const NameTable&) = delete;

  size_t size() const { return size_; }
  // 0 or a power of two; never less than it was. An entry is in the bucket that the low bits of its
  // tag say.
  size_t bucket_count() const { return bucket_count_.load(std::memory_order_relaxed); }
  NameEntry* first_in(size_t bucket) const { return buckets()[bucket].first(); }

  // The entry of the name, or null.
  NameEntry* find(std::string_view name, uint32_t tag) const;
  // A new one without nodes, of a name that has none. Throws std::bad_alloc; nothing has changed
  // then.
  NameEntry* add(std::string_view name, uint32_t tag);
  // Takes out an entry, for the caller to free.
  void remove(NameEntry* entry);
  static void free(NameEntry* entry) { ::operator delete(entry); }

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

  Bucket* buckets() const { return buckets_.load(std::memory_order_relaxed); }
  Bucket& bucket_of(uint32_t tag) const { return buckets()[tag & (bucket_count() - 1)]; }
  void grow();

  std::atomic<Bucket*> buckets_{nullptr};
  std::atomic<size_t> bucket_count_{0};
  size_t size_ = 0;
};

}  // namespace workflow
