#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "util/Pages.h"
#include "util/Time.h"

namespace workflow {

// The part of a timer that the queue uses. A node is in at most one queue.
class TimerQueueNode {
 public:
  // Whether the node is in a queue now. Guarded by whatever guards the queue.
  bool queued() const { return index_ != kNotQueued; }

 private:
  friend class TimerQueue;
  static constexpr uint32_t kNotQueued = UINT32_MAX;
  uint32_t index_ = kNotQueued;
};

// Pending deadlines: a 4-ary min-heap of {deadline, node}. Each node stores its place in the heap.
//
// Pure data: it uses no clock, no lock and no descriptor. It owns no node and is not thread-safe.
// Nodes with equal deadlines leave in no particular order.
//
// Why a heap in chunks: the earliest deadline is exact and O(1), erasing is immediate, nothing is
// ever swept, cascaded or copied when the queue grows. The root is slot 3, so that the children of
// i, slots 4(i-2) to 4(i-2)+3, share one cache line. The chunks, and the tables of pointers to
// them, are Pages. So a queue that grows or shrinks never calls malloc() or free(), which might
// delay the caller, and every thread that waits for its lock, by milliseconds. Costs: insert O(log4
// n), typically O(1); erase, pop and move O(log4 n).
//
// Invariants (check_invariants):
// 1. For every slot i but the root: deadline(parent(i)) <= deadline(i).
// 2. For every slot i: slot(i).node->index_ == i; a node not in the queue has kNotQueued.
// 3. The chunks cover all slots in use. The queue has surplus exactly while at least as many slots
//    are unused as two chunks hold. Then nothing is in the last chunk.
class TimerQueue {
 public:
  TimerQueue() = default;
  ~TimerQueue();
  TimerQueue(const TimerQueue&) = delete;
  TimerQueue& operator=(const TimerQueue&) = delete;

  bool empty() const { return end_ == kRoot; }
  size_t size() const { return end_ - kRoot; }

  // Returns the deadline of the timer that is due next, or kNever if the queue is empty.
  int64_t earliest_ns() const { return empty() ? kNever : slot(kRoot).deadline_ns; }

  // Returns the timer that is due next, or null if the queue is empty.
  TimerQueueNode* earliest() const { return empty() ? nullptr : slot(kRoot).node; }

  // Adds `node`, which must be in no queue. Returns true if it became the earliest. Throws
  // std::bad_alloc; then nothing has changed.
  bool insert(TimerQueueNode* node, int64_t deadline_ns);

  // Removes `node`, which must be in this queue.
  void erase(TimerQueueNode* node);

  // Gives `node`, which must be in this queue, another deadline. Returns true if it is the earliest
  // now.
  bool move(TimerQueueNode* node, int64_t deadline_ns);

  // Returns the deadline of a node in this queue.
  int64_t deadline_ns(const TimerQueueNode* node) const { return slot(node->index_).deadline_ns; }

  // Removes and returns the earliest node if it is due at `now_ns` (deadline <= now), else null.
  TimerQueueNode* pop_due(int64_t now_ns);

  // Removes and returns the earliest node whatever its deadline; null when empty.
  TimerQueueNode* pop() { return pop_due(kNever); }

  // Whether the queue holds memory that it does not need. erase() frees nothing, because its
  // callers hold a lock.
  bool has_surplus() const { return chunk_count_ * kSlotsPerChunk >= end_ + 2 * kSlotsPerChunk; }
  // Removes and returns a piece of the unneeded memory, which the caller frees without the lock;
  // null if there is none. Each erase() creates at most one piece.
  using Surplus = std::unique_ptr<void, GivePages>;
  Surplus take_surplus();

  // Aborts the process with a message when an invariant does not hold. O(n).
  void check_invariants() const;

 private:
  struct Slot {
    int64_t deadline_ns;
    TimerQueueNode* node;
  };
  static constexpr size_t kSlotsPerChunk = Pages::kSize / sizeof(Slot);
  using Chunk = std::array<Slot, kSlotsPerChunk>;
  static_assert(sizeof(Chunk) == Pages::kSize);
  // Pointers to the chunks, in order. There is room for half a billion timers.
  static constexpr size_t kChunksPerTable = Pages::kSize / sizeof(Chunk*);
  static constexpr size_t kTables = 64;
  using Table = std::array<Chunk*, kChunksPerTable>;
  static constexpr size_t kRoot = 3;

  Chunk*& chunk(size_t number) {
    return (*tables_[number / kChunksPerTable])[number % kChunksPerTable];
  }
  const Slot& slot(size_t i) const {
    const size_t number = i / kSlotsPerChunk;
    return (*(*tables_[number / kChunksPerTable])[number % kChunksPerTable])[i % kSlotsPerChunk];
  }
  Slot& slot(size_t i) { return const_cast<Slot&>(std::as_const(*this).slot(i)); }
  void add_chunk();

  void put(size_t i, const Slot& value) {
    slot(i) = value;
    value.node->index_ = static_cast<uint32_t>(i);
  }
  // Places `value` at i, or at its right place above i. Returns that place.
  size_t sift_up(size_t i, const Slot& value);
  // Places `value` at i, or at its right place below i.
  void sift_down(size_t i, const Slot& value);
  // Places `value` at i, or at its right place above or below i.
  void place(size_t i, const Slot& value);
  void remove_at(size_t i);

  std::array<Table*, kTables> tables_{};  // a table, once allocated, stays until the destructor
  size_t chunk_count_ = 0;
  size_t end_ = kRoot;  // one past the last slot in use
};

}  // namespace workflow
