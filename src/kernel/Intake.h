#pragma once

#include <atomic>

#include "util/VirtualScheduler.h"
#include "workflow/detail/Runnable.h"

namespace workflow {

// Where threads leave items for a pool or poller without taking a lock. The items are a stack,
// linked through themselves, whose top is one atomic word. A post replaces the top; a thread that
// wants the items takes the whole stack at once and turns it round. Nobody removes a single item,
// so the same top with another item below it (ABA) does no harm: a post then links the item that is
// the top now.
//
// Any thread may call push() and empty(). Only one thread at a time may call the others. It owns no
// item.
//
// Invariants:
// 1. An item that push() has taken is returned by exactly one take().
// 2. take() returns the items in the order in which they were pushed, also across calls: what one
//    take() returns was pushed before what later ones return.
// 3. While it is closed, it holds nothing, and push() takes nothing.
//
// Memory order. push() is a read-modify-write that releases, and take() one that acquires, so what
// a thread did before it pushed an item happens before the item runs. Successful pushes, the
// loads of empty() and the first load of take() are also seq_cst. A thread that pushes and then
// reads a flag, and a worker that changes this flag and then calls empty() or take(), cannot both
// miss what the other has done. The flags are WorkerPool::unattended_ and ComputeQueue::listed_. A
// poller needs none: what a thread did before Multiplexer::wake() happens before the round that
// this call causes. A push() that finds the intake closed acquires: its caller runs or ends the
// items itself, after all that was done before close().
class alignas(64) Intake {
 public:
  Intake() = default;
  Intake(const Intake&) = delete;
  Intake& operator=(const Intake&) = delete;

  // Takes all items of the list, which is empty then. Returns false, and takes none, if the intake
  // is closed. One atomic operation, unless other threads push at the same time.
  bool push(RunnableList& items) {
    if (items.empty()) return true;
    Runnable* const oldest = items.head_;
    Runnable* const newest = reverse(oldest);
    Runnable* top = top_.load(std::memory_order_acquire);
    schedule_point();
    do {
      if (top == mark()) {
        oldest->next_ = nullptr;  // it led to a top that was there before the intake was closed
        reverse(newest);          // the list is as it was
        return false;
      }
      oldest->next_ = top;
    } while (!top_.compare_exchange_weak(top, newest, std::memory_order_seq_cst,
                                         std::memory_order_acquire));
    items.head_ = items.tail_ = nullptr;
    items.size_ = 0;
    schedule_point();
    return true;
  }

  // Appends all items to `items`, and returns how many. O(number of items).
  size_t take(RunnableList& items) {
    Runnable* top = top_.load(std::memory_order_seq_cst);
    if (!top || top == mark()) return 0;
    schedule_point();
    // Nobody closes an intake that holds something, so what is taken now is not the mark.
    top = top_.exchange(nullptr, std::memory_order_acq_rel);
    if (!top->next_) {
      items.push_back(top);
      return 1;
    }
    RunnableList taken;
    while (Runnable* const item = top) {
      top = item->next_;
      taken.push_front(item);
    }
    const size_t count = taken.size();
    items.append(taken);
    return count;
  }

  bool empty() const {
    const Runnable* const top = top_.load(std::memory_order_seq_cst);
    return !top || top == mark();
  }

  // For the thread that may call close().
  bool closed() const { return top_.load(std::memory_order_relaxed) == mark(); }

  // Closes it if it is empty. Returns whether it is closed now.
  bool close() {
    schedule_point();
    Runnable* top = nullptr;
    return top_.compare_exchange_strong(top, mark(), std::memory_order_seq_cst) || top == mark();
  }

  // Ends what close() has done.
  void open() {
    if (closed()) {
      top_.store(nullptr, std::memory_order_release);
    }
  }

 private:
  // Links the items the other way round, and returns the one that is the first now. Afterwards the
  // former first item is the last one.
  static Runnable* reverse(Runnable* first) {
    Runnable* turned = nullptr;
    while (Runnable* const item = first) {
      first = item->next_;
      item->next_ = turned;
      turned = item;
    }
    return turned;
  }
  // Means that it is closed: an address that no item has.
  Runnable* mark() const { return reinterpret_cast<Runnable*>(const_cast<Intake*>(this)); }

  // See "Memory order" above. The line of the cache in which it is holds nothing else.
  std::atomic<Runnable*> top_{nullptr};
};

}  // namespace workflow
