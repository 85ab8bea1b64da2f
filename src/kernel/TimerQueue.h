#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/LeafOrder.h"
#include "kernel/TimerLeaves.h"
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

// Pending deadlines, in order: a B+ tree whose leaves are not sorted, but for the first, which is a
// 4-ary heap.
//
// Pure data: it uses no clock, no lock and no descriptor. It owns no node and is not thread-safe.
// Nodes with equal deadlines leave in no particular order.
//
// With a million timers, one heap of them all spends most of its time on cache misses: a pop goes
// down ten levels, and at each it reads slots and writes into a node, all of which lie anywhere in
// memory. Here a timer is put behind the last one of its leaf. It is touched again when the leaf is
// divided or becomes the first, together with all others of the leaf, so that the cache misses
// overlap. The heap and its nodes fit into a core's own cache. The earliest deadline is exact and
// O(1), erasing is immediate, and nothing is swept. Until a queue has had more than 2,045 timers,
// all are in the heap.
//
// Costs, with n timers: insert(), erase(), move() and pop() O(log n). A call that divides a leaf,
// joins two, or makes a heap of one touches up to 2,045 nodes, and a move may do two of these. That
// takes tens of microseconds, and as a rule it is less than one call in 500. If very many timers
// have the same deadline, a call that removes a leaf looks at all leaves that have only these.
//
// All memory is Pages. So a queue that grows or shrinks never calls malloc() or free(), which might
// delay the caller, and every thread that waits for its lock, by milliseconds.
//
// Invariants (check_invariants):
// 1. No deadline in a leaf is earlier than the time at which the leaf begins (LeafOrder), or later
//    than the time at which the next leaf begins.
// 2. In the first leaf, for every slot i but the root: deadline(parent(i)) <= deadline(i).
// 3. The index_ of a node tells its leaf and its slot; a node not in the queue has kNotQueued.
// 4. Only the last leaf may be empty: so a timer that comes and goes behind a full leaf does not
//    create and drop a leaf each time. A queue that was never used has no leaf.
class TimerQueue {
 public:
  TimerQueue() = default;
  ~TimerQueue();
  TimerQueue(const TimerQueue&) = delete;
  TimerQueue& operator=(const TimerQueue&) = delete;

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }

  // Returns the deadline of the timer that is due next, or kNever if the queue is empty.
  int64_t earliest_ns() const { return empty() ? kNever : first_->slot(kRoot).deadline_ns; }

  // Returns the timer that is due next, or null if the queue is empty.
  TimerQueueNode* earliest() const { return empty() ? nullptr : first_->slot(kRoot).node; }

  // Adds `node`, which must be in no queue. Returns true if it became the earliest. Throws
  // std::bad_alloc if there is no memory, or no room (LeafOrder, TimerLeaves); then nothing has
  // changed.
  bool insert(TimerQueueNode* node, int64_t deadline_ns);

  // Removes `node`, which must be in this queue.
  void erase(TimerQueueNode* node);

  // Gives `node`, which must be in this queue, another deadline. Returns true if it is the earliest
  // now. Without memory for another leaf the cost is O(n).
  bool move(TimerQueueNode* node, int64_t deadline_ns);

  // Returns the deadline of a node in this queue.
  int64_t deadline_ns(const TimerQueueNode* node) const {
    return leaf_of(node)->slot(slot_of(node)).deadline_ns;
  }

  // Removes and returns the earliest node if it is due at `now_ns` (deadline <= now), else null.
  TimerQueueNode* pop_due(int64_t now_ns);

  // Removes and returns the earliest node whatever its deadline; null when empty.
  TimerQueueNode* pop() { return pop_due(kNever); }

  // Whether the queue holds memory that it does not need. Only take_surplus() frees any, because
  // the callers of the others hold a lock.
  bool has_surplus() const { return leaves_.has_surplus(); }
  // Removes and returns a piece of the unneeded memory, which the caller frees without the lock;
  // null if there is none. Each erase(), move() and pop() creates at most two pieces, and usually
  // one or none.
  using Surplus = TimerLeaves::Surplus;
  Surplus take_surplus() { return leaves_.take_surplus(); }

  // Aborts the process with a message when an invariant does not hold. O(n).
  void check_invariants() const;

 private:
  using Place = LeafOrder::Place;
  static constexpr size_t kRoot = TimerLeaf::kFirst;

  TimerLeaf* leaf_of(const TimerQueueNode* node) const {
    return leaves_.at(node->index_ / TimerLeaf::kSlots);
  }
  static size_t slot_of(const TimerQueueNode* node) { return node->index_ % TimerLeaf::kSlots; }
  static void put(TimerLeaf* leaf, size_t i, const TimerSlot& value) {
    leaf->slot(i) = value;
    value.node->index_ = static_cast<uint32_t>(leaf->number() * TimerLeaf::kSlots + i);
  }
  static void append(TimerLeaf* leaf, const TimerSlot& value) {
    put(leaf, leaf->end(), value);
    leaf->set_end(leaf->end() + 1);
  }
  void erase_at(TimerLeaf* leaf, size_t i);
  // Adds a timer to a leaf that is not full, and removes one, which leaves the node unchanged.
  void add(TimerLeaf* leaf, const TimerSlot& value);
  void remove_at(TimerLeaf* leaf, size_t i);
  // To be called after a timer with that deadline was removed from the leaf. If the leaf is empty,
  // drops it unless it is the last one. If it is small, joins it with a neighbour that is small.
  void tidy(TimerLeaf* leaf, int64_t deadline_ns);
  // Removes an empty leaf.
  void drop(Place place);
  // Moves all timers of the leaf at `right` to the leaf before it.
  void join(TimerLeaf* left, Place right);
  // Divides the full leaf at `place`, or takes an empty or small leaf behind it. Returns the one of
  // the two in which a timer with this deadline belongs, which is not full. Throws std::bad_alloc;
  // then nothing has changed.
  TimerLeaf* split(Place place, int64_t deadline_ns);
  // If the leaf behind `place` has few timers, makes it begin at that time and returns it.
  // Otherwise returns null.
  TimerLeaf* small_leaf_behind(Place place, int64_t begin_ns);
  // Throws std::bad_alloc; then nothing has changed.
  TimerLeaf* insert_leaf_behind(Place place, int64_t begin_ns);
  // Moves about half of a leaf's timers: none that are earlier than `middle_ns`, and all that are
  // later.
  static void move_those_after(TimerLeaf* leaf, int64_t middle_ns, TimerLeaf* added);
  // Adds a timer that belongs in the full leaf at `to`, while the leaf at `hole` is not full, and
  // needs no memory: each leaf between them gives one timer to its neighbour.
  void add_by_shifting(Place hole, Place to, const TimerSlot& value);

  // The heap, which is the first leaf. sift_up() places `value` at i or at its right place above i,
  // sift_down() at i or below it, and sift() does one of both.
  void sift_up(size_t i, const TimerSlot& value);
  void sift_down(size_t i, const TimerSlot& value);
  void sift(size_t i, const TimerSlot& value);
  void make_heap();

  size_t size_ = 0;
  TimerLeaf* first_ = nullptr;  // the first of order_
  LeafOrder order_;
  TimerLeaves leaves_;
};

}  // namespace workflow
