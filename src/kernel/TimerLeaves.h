#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "util/Pages.h"

namespace workflow {

class TimerQueueNode;

struct TimerSlot {
  int64_t deadline_ns;
  TimerQueueNode* node;
};

// One of the pieces of a TimerQueue: up to kCapacity timers.
//
// Their slots fill a piece of Pages. This description of them lies elsewhere: if it were part of
// the piece, all descriptions would have the same place in a piece, and most of them could not be
// in a core's cache at once.
class TimerLeaf {
 public:
  static constexpr size_t kSlots = Pages::kSize / sizeof(TimerSlot);
  // Slots before this one are never used, so that the slots 4n to 4n+3 share a cache line.
  static constexpr size_t kFirst = 3;
  static constexpr size_t kCapacity = kSlots - kFirst;

  // `memory` is a piece of Pages. Its slots are written as they are used.
  TimerLeaf(void* memory, uint32_t number)
      : slots_(static_cast<TimerSlot*>(memory)), number_(number) {}

  void* memory() const { return slots_; }
  // Constant; no other leaf of its queue has it.
  uint32_t number() const { return number_; }

  TimerSlot& slot(size_t i) { return slots_[i]; }
  const TimerSlot& slot(size_t i) const { return slots_[i]; }
  size_t end() const { return end_; }  // one past the last slot in use
  void set_end(size_t end) { end_ = static_cast<uint32_t>(end); }
  // Fetches the slot that the next timer will be put into.
  void prefetch_end() const { __builtin_prefetch(slots_ + end_, 1); }

  size_t size() const { return end_ - kFirst; }
  bool empty() const { return end_ == kFirst; }
  bool full() const { return end_ == kSlots; }

 private:
  TimerSlot* slots_;
  uint32_t number_;
  uint32_t end_ = kFirst;
};

// Creates the leaves of one queue, finds them by their numbers, and keeps the memory that the queue
// does not use now. All of it is Pages.
class TimerLeaves {
 public:
  TimerLeaves() = default;
  // All leaves must have been given back.
  ~TimerLeaves();
  TimerLeaves(const TimerLeaves&) = delete;
  TimerLeaves& operator=(const TimerLeaves&) = delete;

  // Creates an empty leaf. Throws std::bad_alloc.
  TimerLeaf* take();
  void give(TimerLeaf* leaf);
  // Adds a piece of Pages to the memory that is not used. Null is ignored.
  void give_memory(void* pages);

  // The number must be that of a leaf.
  TimerLeaf* at(size_t number) const { return &entry(number).leaf; }

  // One unused piece stays, so that a queue at a boundary does not allocate again and again. All
  // others are surplus.
  bool has_surplus() const { return spare_count_ > 1; }
  using Surplus = std::unique_ptr<void, GivePages>;
  // Removes and returns one of them; null if there is none.
  Surplus take_surplus();

 private:
  union Entry {
    TimerLeaf leaf;
    uint32_t next_free;  // if no leaf has this number: the next one that no leaf has
  };
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr size_t kEntries = Pages::kSize / sizeof(Entry);
  using Table = std::array<Entry, kEntries>;
  // There is room for 134 million timers even if all leaves are half full.
  static constexpr size_t kTables = 64;
  struct Spare {
    Spare* next;
  };

  Entry& entry(size_t number) const { return (*tables_[number / kEntries])[number % kEntries]; }
  uint32_t take_number();

  std::array<Table*, kTables> tables_{};  // a table, once allocated, stays until the destructor
  uint32_t number_count_ = 0;             // how many numbers were ever used
  uint32_t free_number_ = kNone;          // the first of those that no leaf has now
  Spare* spares_ = nullptr;
  size_t spare_count_ = 0;
};

}  // namespace workflow
